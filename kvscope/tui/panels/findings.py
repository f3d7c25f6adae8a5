"""Findings: a line each, and everything about the chosen one beneath where there is room."""

from __future__ import annotations

import textwrap
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.message import Message
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from kvscope.finding import Diagnosis, Finding
from kvscope.state import near_line, unjudged
from kvscope.tui.finding_text import brief, full, one_line
from kvscope.tui.palette import DIM, FAINT, NOTE, TEXT
from kvscope.tui.panels.panel import Panel
from kvscope.view import View


class FindingList(OptionList):
    """The list itself, with the keys of a list."""

    class Moved(Message):
        """Somebody moved to another finding."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", "Next", show=False),
        Binding("k", "cursor_up", "Previous", show=False),
        Binding("g", "first", "First", show=False),
        Binding("G", "last", "Last", show=False),
    ]

    def action_cursor_down(self) -> None:
        super().action_cursor_down()
        self.post_message(self.Moved())

    def action_cursor_up(self) -> None:
        super().action_cursor_up()
        self.post_message(self.Moved())


class FindingsPanel(Panel):
    TITLE = "Findings"
    SLOT = "story"
    READS = ("diagnosis", "can_apply", "status", "playbooks", "state")
    HELP = "What was found, the numbers, the other causes, the next step. Enter opens one."

    class Opened(Message):
        """Somebody wants to read one finding in full."""

        def __init__(self, finding: Finding) -> None:
            super().__init__()
            self.finding = finding

    class Picked(Message):
        """Somebody moved to another finding."""

        def __init__(self, finding: Finding) -> None:
            super().__init__()
            self.finding = finding

    def __init__(self) -> None:
        super().__init__()
        self.findings: tuple[Finding, ...] = ()
        self._can_apply = False
        self._diagnosis: Diagnosis | None = None
        self._titled = True
        """The line at the top of the screen names the first finding."""
        self._written = Text()
        self._picked = ""
        """Id of the finding somebody moved to; until then the first one is shown, whichever that is."""

    def compose(self) -> ComposeResult:
        yield FindingList()
        with VerticalScroll(can_focus=True):
            yield Static()

    @property
    def narrow(self) -> bool:
        """Too little room for everything: what to do about it comes first, and Enter opens the rest."""
        return self.size.height < 16

    @property
    def chosen(self) -> Finding | None:
        """The highlighted finding, else the first."""
        index = self.query_one(FindingList).highlighted
        if index is not None and index < len(self.findings):
            return self.findings[index]
        return self.findings[0] if self.findings else None

    def show(self, view: View) -> None:
        # What cannot be told stands beneath what can.
        self.findings = tuple(sorted(view.findings, key=lambda one: one.verdict == "needs_data"))
        self._titled = view.state is not None and view.state.kind == "found"
        self._can_apply, self._diagnosis = view.can_apply, view.diagnosis
        options = self.query_one(FindingList)
        self._fill(options)
        self._split()
        if self.findings:
            names = [finding.id for finding in self.findings]
            options.highlighted = names.index(self._picked) if self._picked in names else 0
        self._write()

    def _fill(self, options: FindingList) -> None:
        options.display = bool(self.findings) and not (self.narrow and len(self.findings) == 1 and self._titled)
        width = max(self.content_size.width - 1, 20)
        lines = [one_line(finding, width) for finding in self.findings]
        if options.option_count == len(lines) and lines:
            for index, line in enumerate(lines):
                if options.get_option_at_index(index).prompt != line:
                    options.replace_option_prompt_at_index(index, line)
            return
        options.clear_options()
        options.add_options([Option(line, id=finding.id) for line, finding in zip(lines, self.findings, strict=True)])

    def _write(self) -> None:
        page, finding = self.query_one(Static), self.chosen
        width = max(self.query_one(VerticalScroll).size.width - 2, 24)
        if finding is None:
            text = empty(self._diagnosis, width)
        else:
            text = brief(finding, width, self._can_apply) if self.narrow else full(finding, width, self._can_apply)
            left_out = unjudged(self._diagnosis) if self._diagnosis else ""
            if left_out:
                text.append("\n" + "\n".join(textwrap.wrap(left_out, width)), style=FAINT)
        lines = text.plain.count("\n")
        if text != self._written:
            # Everything on screen is placed anew only where the text grew or shrank.
            page.update(text, layout=lines != self._written.plain.count("\n"))
            self._written = text

    def on_finding_list_moved(self, event: FindingList.Moved) -> None:
        """Stay with what somebody chose."""
        event.stop()
        if self.chosen is not None:
            self._picked = self.chosen.id
            self.post_message(self.Picked(self.chosen))

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Another finding: its text, from its top."""
        event.stop()
        self._write()
        self.query_one(VerticalScroll).scroll_home(animate=False)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Enter opens the finding in full."""
        event.stop()
        if event.option_index < len(self.findings):
            self.post_message(self.Opened(self.findings[event.option_index]))

    def on_resize(self, event: events.Resize) -> None:
        """Lines and text are as wide as the panel."""
        self._split()
        self.call_after_refresh(self._again)

    def _split(self) -> None:
        """Too low for list and text: the list alone, and Enter for the text."""
        self.set_class(bool(self.findings) and self.size.height - len(self.findings) < 5, "-list-only")
        self.set_class(not self.findings, "-text-only")

    def _again(self) -> None:
        self._fill(self.query_one(FindingList))
        self._write()


def empty(diagnosis: Diagnosis | None, width: int) -> Text:
    """What to say when there is no finding: what could not be known, and how to know it."""
    text = Text(no_wrap=True)
    if diagnosis is None:
        text.append(
            "No diagnosis yet. It comes by itself once there is enough to judge;\nd asks for one now.", style=DIM
        )
        return text
    for near in diagnosis.coverage.near if diagnosis.coverage else ():
        _item(text, "near", near_line(near), width)
    for light in diagnosis.coverage.lights[:_MOST_LIGHTS] if diagnosis.coverage else ():
        count = len(light.rules)
        _item(text, f"+{count}", f"rule{'s' if count > 1 else ''} could judge: {light.way}", width)
    if text.plain:
        reach = diagnosis.coverage
        head = (
            f"{reach.judged} of {reach.rules} rules could be judged. What would let more of them:\n\n" if reach else ""
        )
        return Text(head, style=TEXT, no_wrap=True).append_text(text)
    return text.append("Nothing is left to judge here.", style=DIM)


_MOST_LIGHTS = 6


def _item(text: Text, label: str, words: str, width: int) -> None:
    lines = textwrap.wrap(words, max(width - 8, 12), break_on_hyphens=False)
    text.append(f"  {label:<6}", style=NOTE)
    text.append(("\n" + " " * 8).join(lines) + "\n", style=TEXT)
