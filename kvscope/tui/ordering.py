"""Keys that change something, each one order to the polling thread; moving between screens; and
the screen and its numbers to keep, as a picture, as plain text, as JSON.
"""

from __future__ import annotations

import json
import time
from dataclasses import is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual._styles_cache import StylesCache
from textual.app import App
from textual.await_complete import AwaitComplete

from kvscope import screens
from kvscope.finding import Finding
from kvscope.order import Apply, Look, MarkBaseline, Order, Seek, SetKnob, ToggleFault
from kvscope.signals.reading import Missing
from kvscope.tui.keys import BY_ID, idle
from kvscope.tui.panels.findings import FindingsPanel
from kvscope.tui.poller import Poller, Watched
from kvscope.tui.screens.board import Board
from kvscope.tui.screens.dialogs import ConfirmScreen, EditScreen
from kvscope.tui.screens.main import MainScreen
from kvscope.view import View

if TYPE_CHECKING:
    from kvscope.view import View


def save(app: Ordering, form: str) -> str:
    """Write the screen into the current directory as ``svg``, ``txt`` or ``json``; returns the file's name."""
    name = time.strftime(f"kvscope-%Y%m%d-%H%M%S.{form}")
    if form == "svg":
        text = app.export_screenshot(title="kvscope")
    elif form == "txt":
        text = plain(app)
    else:
        text = as_json(app.view) if app.view is not None else "{}"
    Path(name).write_text(text, encoding="utf-8")
    return name


def plain(app: Ordering) -> str:
    """What is on screen as lines of text, no space at their ends."""
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips) + "\n"


def as_json(view: View) -> str:
    """Every number of the view; what is unknown is an object that says why and what would supply it."""
    return json.dumps(_plain(view), indent=1, ensure_ascii=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, Missing):
        return {"missing": value.reason, "remedy": value.remedy}
    if is_dataclass(value) and not isinstance(value, type):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value


class Ordering(App[None]):
    """The half of the application that talks to the session, through the poller and never directly.

    One screen of its own data lies over the overview at a time; the session computes for the one that is open.
    """

    def __init__(self, session: Watched, interval_s: float) -> None:
        super().__init__()
        self.session = session
        self.view: View | None = None
        self.poller = Poller(session, self.post_message, interval_s)

    def order(self, asked: Order) -> None:
        """Let the polling thread see to it; its words come back as a notice."""
        self.poller.ask(asked)

    def ask_first(self, asked: Order) -> None:
        """Order it; what changes the engine is asked for first, and a knob for its value."""
        if isinstance(asked, SetKnob):

            def entered(value: str | None) -> None:
                if value and value != asked.value:
                    self.order(SetKnob(asked.knob, value))

            self.push_screen(EditScreen(asked.knob, asked.value, "x2 or +50% or -1 is a step, "), entered)
        elif isinstance(asked, ToggleFault):
            question = f"End {asked.fault}, put back what it changed?" if asked.on else f"Start {asked.fault}?"
            self._confirm(question, asked.says, asked)
        else:
            self.order(asked)

    def _confirm(self, question: str, detail: str, asked: Order) -> None:
        self.push_screen(ConfirmScreen(question, detail), lambda yes: self.order(asked) if yes else None)

    def action_order(self, name: str) -> None:
        """The order of the key of that name."""
        asked = BY_ID[name].does
        assert not isinstance(asked, str)
        self.order(asked)

    def action_name_segment(self) -> None:
        """Start a segment under a name that is typed."""
        self.push_screen(
            EditScreen("name of the new segment", "after"),
            lambda name: self.order(MarkBaseline(name)) if name else None,
        )

    def action_profile(self) -> None:
        """Say the command that profiles this engine: it slows the engine down, so it asks in a terminal of its own."""
        if self.view is None or "profile" in idle(self.view):
            self.notify("Only a running vLLM or SGLang server can be profiled from here.", timeout=4)
            return
        command = f"kvscope profile {self.view.target} --steps 20"
        self.copy_to_clipboard(command)
        told = f"In another terminal (copied): {command}\nIt says what it costs, and asks before it starts."
        self.notify(told, timeout=12, markup=False)

    def action_onset(self) -> None:
        """Show the moment at which the chosen finding began."""
        finding = self._chosen()
        if finding is None or finding.onset_s is None:
            self.notify("No finding with a known beginning.", timeout=4)
            return
        self.order(Seek(finding.onset_s, centre=True))

    def action_apply(self) -> None:
        """Ask, then apply the proposed experiment of the chosen finding."""
        finding = self._to_apply()
        if self.view is None or finding is None or finding.experiment is None:
            self.notify("No finding proposes a change that can be made from here.", timeout=4)
            return
        experiment = finding.experiment
        if not self.view.can_apply:
            hint = experiment.run or experiment.change
            told = f"Only the built-in engine can be changed from here. For yours: {hint}"
            self.notify(told, timeout=8, markup=False)
            return
        sets = "\n".join(f"{name} = {value}" for name, value in experiment.set)
        held = f"\nheld: {', '.join(experiment.hold)}" if experiment.hold else ""
        self._confirm(f"Apply: {experiment.change}?", sets + held, Apply(finding.id))

    def _chosen(self) -> Finding | None:
        """The finding that is open or highlighted, else the first."""
        for screen in reversed(self.screen_stack):
            finding = getattr(screen, "finding", None)
            if isinstance(finding, Finding):
                return finding
        return None

    def _to_apply(self) -> Finding | None:
        """The chosen finding when it sets something; on the overview else the first that does."""
        chosen = self._chosen()
        candidates = [chosen] if chosen else []
        if isinstance(self.screen, MainScreen):
            candidates += list(self.view.findings) if self.view else []
        return next((f for f in candidates if f.experiment and f.experiment.set), None)

    def pop_screen(self) -> AwaitComplete:
        """Close a screen, and let go of what was painted of it: the toolkit keeps the rows of a thousand widgets."""
        closing = super().pop_screen()
        self.call_later(lambda: StylesCache.get_inner_outer.cache_clear())
        return closing

    def on_findings_panel_opened(self, message: FindingsPanel.Opened) -> None:
        """Enter on a finding."""
        from kvscope.tui.screens.finding import FindingScreen

        if self.view is not None:
            back = self.view.page.name if self.view.page else screens.OVERVIEW
            self.push_screen(FindingScreen(message.finding, self.view), lambda _: self.order(Look(back)))
            self.order(Look(f"diagnosis/{message.finding.id}"))

    def action_board(self, name: str) -> None:
        """Open a screen in place of the one that is open; its own key closes it."""
        if name == screens.OVERVIEW or (isinstance(self.screen, Board) and self.screen.shows == name):
            self.action_close_board()
            return
        self._leave_board()
        self.push_screen(Board(name))
        self.order(Look(name))

    def go(self, asked: Look) -> None:
        """Look at something of another screen: over the overview where that is what shows it."""
        if asked.screen.startswith("replica/"):
            self._leave_board()
        self.order(asked)

    def action_close_board(self) -> None:
        """Back to the overview."""
        if self._leave_board() or (self.view is not None and self.view.only):
            self.order(Look(screens.OVERVIEW))

    def _leave_board(self) -> bool:
        """Close what lies over the overview; whether a screen of its own data was among it."""
        had = False
        while len(self.screen_stack) > 1 and not isinstance(self.screen, MainScreen):
            had = had or isinstance(self.screen, Board)
            self.pop_screen()
        return had

    def action_save(self, form: str = "svg") -> None:
        """Write the screen into the current directory, as a picture, as text or with every number as JSON."""
        try:
            told = f"Saved {save(self, form)}"
        except OSError as error:
            self.notify(f"Not saved: {error}", severity="error", markup=False)
            return
        self.notify(told, timeout=4, markup=False)

    def action_copy(self) -> None:
        """Put the screen's text into the terminal's clipboard."""
        self.copy_to_clipboard(plain(self))
        self.notify("Copied the screen as text", timeout=4)
