"""The lines that answer first: is something wrong, what, why, and what next."""

from __future__ import annotations

from textwrap import wrap

from textual.app import ComposeResult

from kvscope.finding import Finding
from kvscope.format import clip
from kvscope.tui.finding_text import why_of
from kvscope.tui.palette import BRIGHT, DIM, FAINT, GOOD, NOTE, TEXT, VERDICT_COLOUR, VERDICT_GLYPH, paint
from kvscope.tui.panels.panel import Panel
from kvscope.tui.widgets.canvas import Canvas, Line
from kvscope.view import View


class VerdictLine(Canvas):
    """The strongest finding as a sentence, why, what next; under it what the session is doing, if it says so."""

    view: View | None = None

    def draw(self, width: int, height: int) -> list[Line]:
        rows = [Line(width) for _ in range(height)]
        if self.view is None or not height:
            return rows
        first = next(iter(told(self.view)), None)
        if first is None:
            self._quiet(rows, self.view, width)
            return rows
        style = paint(VERDICT_COLOUR[first.verdict], bold=True)
        head = f"{VERDICT_GLYPH[first.verdict]} {first.verdict.replace('_', ' ').upper()}"
        rows[0].put(1, head, style)
        rows[0].put(len(head) + 3, clip(first.title, width - len(head) - 4), paint(BRIGHT, bold=True))
        at = len(head) + 5 + len(first.title)
        more = len([finding for finding in told(self.view) if finding.verdict != "refuted"]) - 1
        if more > 0 and at + 12 < width:
            rows[0].put_right(width - 1, f"+{more} more", paint(DIM))
        rest = [*self._rest(self.view, first), ("now", self.view.status, NOTE)]
        spare = height - 1 - sum(bool(text) for _, text, _ in rest)
        below = iter(rows[1:])
        for name, text, colour in rest:
            lines = wrap(text, max(width - 11, 8), break_on_hyphens=False)
            for at, line in enumerate(_within(lines, 1 + max(spare, 0), width - 11)):
                row = next(below, Line(width))
                row.put(3, "" if at else name, paint(FAINT))
                row.put(10, line, paint(colour))
                spare -= at
        return rows

    def _quiet(self, rows: list[Line], view: View, width: int) -> None:
        glyph, text, colour = quiet_words(view)
        rows[0].put(1, glyph, paint(colour, bold=True))
        rows[0].put(3, clip(text, width - 4), paint(BRIGHT if colour == GOOD else TEXT))
        lines = []
        unknown = view.diagnosis.unknown if view.diagnosis else ()
        if unknown:
            lines.append(f"{len(unknown)} signals unknown, so not ruled out: 2 says what would supply them")
        lines += view.notices[-2:]
        for row, line in zip(rows[1:], lines, strict=False):
            row.put(3, clip(line, width - 4), paint(DIM))

    def _rest(self, view: View, first: Finding) -> tuple[tuple[str, str, str], ...]:
        """Why, and what next, each with its colour."""
        why = ("why", why_of(first), TEXT)
        if view.trial is not None:
            trial = view.trial
            told = f"{trial.change}: measuring, {trial.windows} of {trial.needed} windows"
            return why, ("trying", told, NOTE)
        if first.verdict in ("confirmed", "refuted"):
            return why, ("tried", first.experiment.change if first.experiment else "", TEXT)
        if first.experiment is None:
            return why, ("next", first.fix[0] if first.fix else "", TEXT)
        here = view.can_apply and first.experiment.set
        return why, ("next", ("press a: " if here else "") + first.experiment.change, TEXT)


class VerdictPanel(Panel):
    TITLE = "Verdict"
    SLOT = "top"
    READS = ("diagnosis", "trial", "can_apply", "ended", "status", "notices", "playbooks")

    def compose(self) -> ComposeResult:
        yield VerdictLine()

    def show(self, view: View) -> None:
        line = self.query_one(VerdictLine)
        line.view = view
        first = next(iter(told(view)), None)
        self.set_class(first is not None and bool(view.status), "-told")
        self.set_class(first is not None and len(why_of(first)) > self.size.width - 11, "-long")
        line.redraw()


def _within(lines: list[str], most: int, width: int) -> list[str]:
    """At most that many of the lines, the last one ending in an ellipsis where something was left out."""
    return [*lines[: most - 1], clip(" ".join(lines[most - 1 :]), width)] if len(lines) >= most else lines


def told(view: View) -> tuple[Finding, ...]:
    """Findings that say something happened, strongest first."""
    return tuple(f for f in view.findings if f.verdict not in ("silent", "needs_data") and not f.explained_by)


def quiet_words(view: View) -> tuple[str, str, str]:
    """Glyph, sentence and colour when there is no finding to tell."""
    if view.status:
        return "…", view.status, DIM
    if view.diagnosis is None:
        return "…", "Reading: no diagnosis yet", DIM
    undecided = sum(finding.verdict == "needs_data" for finding in view.findings)
    if undecided:
        return "…", f"Nothing found so far; {undecided} of {view.playbooks or undecided} playbooks need more data", DIM
    asked = f"all {view.playbooks} playbooks are silent" if view.playbooks > 1 else "every playbook is silent"
    return "✓", f"Nothing wrong found: {asked}", GOOD
