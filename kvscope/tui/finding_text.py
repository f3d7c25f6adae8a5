"""A finding as text of a given width: what is wrong, why, what was ruled out, what it is worth, what next."""

from __future__ import annotations

import textwrap

from rich.text import Text

from kvscope.finding import Evidence, Experiment, Finding, Gain, Rival, RivalState
from kvscope.format import clip, signed, with_error
from kvscope.signals.significance import Answer
from kvscope.tui.palette import (
    BRIGHT,
    DIM,
    FAINT,
    GOOD,
    NOTE,
    TEXT,
    VERDICT_COLOUR,
    VERDICT_GLYPH,
)
from kvscope.wording import told_once

_ANSWER: dict[Answer, tuple[str, str]] = {"yes": ("✓", TEXT), "no": ("✗", DIM), "unknown": ("?", NOTE)}
_STATE: dict[RivalState, str] = {"excluded": FAINT, "open": NOTE, "unmeasured": NOTE}


def one_line(finding: Finding, width: int) -> Text:
    """Glyph, verdict and title on one line."""
    glyph, colour = VERDICT_GLYPH[finding.verdict], VERDICT_COLOUR[finding.verdict]
    word = finding.verdict.replace("_", " ").upper()
    text = Text(no_wrap=True)
    text.append(f"{glyph} ", style=f"bold {colour}")
    text.append(f"{word:<12}", style=f"bold {colour}")
    worth = _worth_short(finding.gain)
    worth = worth if len(finding.headline) <= width - 15 - len(worth) else ""
    room = width - 14 - (len(worth) + 1 if worth else 0)
    text.append(clip(finding.headline, room).ljust(room), style=BRIGHT if finding.verdict != "refuted" else DIM)
    if worth:
        text.append(f" {worth}", style=DIM)
    return text


def why_of(finding: Finding) -> str:
    """Its cause; of one that is unexplained, that this cause is not it."""
    return f"not known; ruled out: {finding.cause}" if finding.verdict == "unexplained" else finding.cause


def full(finding: Finding, width: int, can_apply: bool = False) -> Text:
    """Everything a finding carries, in the order a person asks."""
    page = _Page(width)
    page.wrap(why_of(finding), TEXT)
    if finding.explained_by:
        page.wrap(f"Explained by {finding.explained_by}", DIM)
    page.fixes(finding)
    for title, role in (("SEEN", "symptom"), ("BECAUSE", "cause")):
        shown = [evidence for evidence in told_once(finding.evidence) if evidence.role == role]
        if shown:
            page.head(title)
            for evidence in shown:
                page.evidence(evidence)
    if finding.experiment is not None:
        page.head("NEXT" if finding.verdict not in ("confirmed", "refuted") else "TRIED")
        page.experiment(finding.experiment, can_apply)
    if finding.gain is not None:
        page.head("WORTH")
        page.wrap(_worth(finding.gain), TEXT)
    if finding.rivals:
        page.head("OTHER CAUSES")
        for rival in finding.rivals:
            page.rival(rival)
    if finding.notes:
        page.head("NOTES")
        page.wrap(finding.notes, DIM)
    return page.text


def brief(finding: Finding, width: int, can_apply: bool = False) -> Text:
    """Cause, the first fix, the numbers seen, what next: a line or two each, for where there is little room."""
    page = _Page(width)
    page.wrap(why_of(finding), TEXT, first="why   ", indent=0)
    for at, step in enumerate(finding.fix[:2]):
        page.wrap(step, BRIGHT if not at else TEXT, first="fix   " if not at else "      ", indent=0)
    seen = [one for one in told_once(finding.evidence) if one.answer == "yes"]
    for at, one in enumerate(seen[:4]):
        words = f"{one.signal} {_value(one)} {_change(one)} ({one.says})"
        page.wrap(" ".join(words.split()), TEXT, first="seen  " if not at else "      ", indent=0)
    if finding.experiment is not None:
        press = "press a: " if can_apply and finding.experiment.set else ""
        tried = finding.verdict in ("confirmed", "refuted")
        page.wrap(press + finding.experiment.change, TEXT, first="tried " if tried else "next  ", indent=0)
    return page.text


class _Page:
    """Text being written at one width."""

    def __init__(self, width: int) -> None:
        self.width = max(width, 24)
        self.text = Text(no_wrap=True, overflow="crop")

    def wrap(self, words: str, style: str, first: str = "", indent: int = 2) -> None:
        """Wrapped words; ``first`` begins the first line and the others stand beneath its words."""
        room = max(self.width - indent - len(first), 12)
        for index, line in enumerate(textwrap.wrap(" ".join(words.split()), room, break_on_hyphens=False) or [""]):
            self.text.append(" " * indent + (first if index == 0 else " " * len(first)), style=DIM)
            self.text.append(line + "\n", style=style)

    def head(self, title: str) -> None:
        """A heading with air above it."""
        self.text.append(f"\n{title}\n", style=f"bold {DIM}")

    def fixes(self, finding: Finding) -> None:
        """What to do, cheapest first."""
        if finding.fix:
            self.head("FIX")
        for number, step in enumerate(finding.fix, start=1):
            self.wrap(step, TEXT, first=f"{number}. ")

    def evidence(self, evidence: Evidence) -> None:
        """A check with its numbers, its baseline and where they come from."""
        glyph, colour = _ANSWER[evidence.answer]
        self._row(glyph, GOOD if evidence.answer == "yes" else colour, f"{evidence.signal} {evidence.says}", evidence)
        if evidence.missing:
            self.wrap(evidence.missing + (f": {evidence.remedy}" if evidence.remedy else ""), NOTE, indent=4)

    def _row(self, glyph: str, colour: str, label: str, evidence: Evidence) -> None:
        """One line when label and numbers fit, else the numbers on the next; the baseline and source beneath."""
        value, change = _value(evidence), _change(evidence)
        numbers = len(value) + (len(change) + 2 if change else 0)
        self.text.append(f"  {glyph} ", style=colour)
        room = self.width - 4 - numbers - 2
        if not numbers or len(label) <= room:
            self.text.append(clip(label, self.width - 4).ljust(room + 2 if numbers else 0), style=TEXT)
            self._numbers(value, change)
            detail = _detail(evidence, self.width - 4)
            if detail:
                self.text.append(f"    {detail}\n", style=FAINT)
            return
        self.text.append(clip(label, self.width - 4) + "\n", style=TEXT)
        self.text.append("    " + _detail(evidence, room).ljust(room + 2), style=FAINT)
        self._numbers(value, change)

    def _numbers(self, value: str, change: str) -> None:
        self.text.append(value, style=f"bold {BRIGHT}")
        self.text.append(f"  {change}\n" if change else "\n", style=TEXT)

    def rival(self, rival: Rival) -> None:
        """Another cause: its state, what it says, the number that decided."""
        evidence = rival.evidence
        self.text.append(f"  {rival.state:<12}", style=_STATE[rival.state])
        lines = textwrap.wrap(rival.says, self.width - 14, break_on_hyphens=False) or [""]
        self.text.append(f"\n{' ' * 14}".join(lines) + "\n", style=TEXT)
        if rival.state == "unmeasured":
            reason = evidence.missing or "no reading"
            remedy = f"; {evidence.remedy}" if evidence.remedy else ""
            self.wrap(f"{evidence.signal}: {reason}{remedy}", NOTE, indent=14)
        else:
            value, change = _value(evidence), _change(evidence)
            room = self.width - 14 - len(value) - (len(change) + 2 if change else 0) - 2
            self.text.append(" " * 14 + clip(f"{evidence.signal} {evidence.says}", room).ljust(room + 2), style=FAINT)
            self._numbers(value, change)
        if rival.state == "open" and rival.look:
            self.wrap(f"see {rival.look}", DIM, indent=14)

    def experiment(self, experiment: Experiment, can_apply: bool) -> None:
        """The one change, what is held, what must then be seen."""
        self.wrap(experiment.change, BRIGHT)
        if experiment.hold:
            self.wrap("hold " + ", ".join(experiment.hold), DIM)
        for evidence in experiment.predict:
            glyph, colour = _ANSWER[evidence.answer]
            judged = evidence.value is not None
            label = f"expect {evidence.signal} {evidence.says}"
            self._row(glyph if judged else "→", colour if judged else DIM, label, evidence)
        if can_apply and experiment.set:
            sets = ", ".join(f"{name} = {value}" for name, value in experiment.set)
            self.wrap(f"a applies it here: {sets}", GOOD)
        elif experiment.run:
            self.wrap(experiment.run, TEXT, first="run ")


def _value(evidence: Evidence) -> str:
    if evidence.value is None:
        return "" if evidence.role == "prediction" or not evidence.missing else "unknown"
    return with_error(evidence.value, evidence.error, evidence.unit)


def _change(evidence: Evidence) -> str:
    if evidence.change is None:
        return ""
    text = signed(evidence.change, evidence.points)
    if evidence.change_error:
        size = abs(evidence.change_error) * 100
        text += f" ± {size:.1f}"
    return text


def _detail(evidence: Evidence, room: int) -> str:
    """Baseline, source and batches, as many of them as fit."""
    parts = []
    if evidence.baseline is not None:
        parts.append("was " + with_error(evidence.baseline, evidence.baseline_error, evidence.unit))
    if evidence.source:
        parts.append(evidence.source)
    if evidence.batches:
        parts.append(f"{evidence.batches} batches")
    while parts and len(" · ".join(parts)) > room:
        parts.pop()
    return " · ".join(parts)


def _worth(gain: Gain) -> str:
    parts = [f"brought ×{gain.measured:.2f}"] if gain.measured is not None else []
    if gain.expected is not None:
        parts.append(f"about ×{gain.expected:.2f} {gain.of}")
    if gain.bound is not None:
        parts.append(f"at most ×{gain.bound:.2f}" + ("" if parts else f" {gain.of}"))
    if not parts:
        return "not known: the share it would remove was not measured"
    return ", ".join(parts) + f" ({gain.basis}{', from ' + gain.reads if gain.reads else ''})"


def _worth_short(gain: Gain | None) -> str:
    if gain is None or gain.bound is None:
        return ""
    return f"≤ ×{gain.bound:.1f}"
