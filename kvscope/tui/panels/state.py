"""The lines that answer first: how it does, what limits it, how much room is left, and what the session is doing."""

from __future__ import annotations

from textwrap import wrap

from textual.app import ComposeResult

from kvscope.account import words
from kvscope.finding import Finding
from kvscope.format import clip
from kvscope.state import State
from kvscope.tui.palette import (
    BAD,
    BRIGHT,
    DIM,
    FAINT,
    GOOD,
    NOTE,
    TEXT,
    VERDICT_COLOUR,
    VERDICT_GLYPH,
    paint,
)
from kvscope.tui.panels.panel import Panel
from kvscope.tui.widgets.canvas import Canvas, Line
from kvscope.view import View

_SIGNS = {
    "down": ("✗", "DOWN", BAD),
    "reading": ("…", "", DIM),
    "idle": ("○", "IDLE", DIM),
    "unnamed": ("▲", "DISTRESS", BAD),
    "unjudged": ("?", "NOT JUDGED", NOTE),
    "healthy": ("✓", "", GOOD),
}
"""A tick stands only where something was judged."""
_AT = 9
_TWO_LINES = ("now", "change", "first")
_AT_A_DEAD_ONE = (
    "look whether its process runs and what its log ends with: kvscope diagnose SERVER.LOG reads it; "
    "this goes on by itself when it answers"
)


class StateLines(Canvas):
    """State, limit, room; beneath them what the session is doing, if it says so."""

    view: View | None = None

    def draw(self, width: int, height: int) -> list[Line]:
        rows = [Line(width) for _ in range(height)]
        if self.view is None or not height:
            return rows
        glyph, word, says, colour = head_of(self.view)
        head = f"{glyph} {word}".rstrip()
        rows[0].put(1, head, paint(colour, bold=True))
        more = len([finding for finding in told(self.view) if finding.verdict != "refuted"]) - 1
        extra = f"+{more} more" if more > 0 else ""
        room = width - len(head) - 4 - (len(extra) + 2 if extra else 0)
        rows[0].put(len(head) + 3, clip(says, room), paint(BRIGHT, bold=True))
        rows[0].put_right(width - 1, extra, paint(DIM))
        below = iter(rows[1:])
        for label, text, tone in lines_of(self.view):
            lines = wrap(text, max(width - _AT - 2, 8), break_on_hyphens=False)
            for at, line in enumerate(lines[:2] if label in _TWO_LINES else lines[:1]):
                row = next(below, None)
                if row is None:
                    return rows
                row.put(1, "" if at else label, paint(FAINT))
                row.put(
                    _AT,
                    clip(line if at or len(lines) == 1 or label in _TWO_LINES else text, width - _AT - 1),
                    paint(tone),
                )
        return rows


class StatePanel(Panel):
    TITLE = "State"
    SLOT = "top"
    TITLED = False
    READS = ("state", "account", "rooms", "diagnosis", "trial", "status", "notices")

    def compose(self) -> ComposeResult:
        yield StateLines()

    def show(self, view: View) -> None:
        lines = self.query_one(StateLines)
        lines.view = view
        if not self.screen.has_class("board"):
            wide = max(self.size.width - _AT - 2, 8)
            count = sum(len(wrap(text, wide)[:2]) if label in _TWO_LINES else 1 for label, text, _ in lines_of(view))
            self.styles.height = 1 + count
        lines.redraw()


def head_of(view: View) -> tuple[str, str, str, str]:
    """Sign, word, sentence and colour of the first line."""
    state = view.state or State("reading", "Reading: nothing was judged yet")
    first = next(iter(told(view)), None)
    if state.kind == "found" and first is not None:
        verdict = first.verdict
        return VERDICT_GLYPH[verdict], verdict.replace("_", " ").upper(), first.headline, VERDICT_COLOUR[verdict]
    glyph, word, colour = _SIGNS.get(state.kind, ("?", "", NOTE))
    return glyph, word, state.says, colour


def lines_of(view: View) -> list[tuple[str, str, str]]:
    """(label, text, colour) of the lines under the first: those that have something to say."""
    found = []
    if view.account is not None:
        limit, _, rest = words.headline(view.account).partition("; ")
        told = f"{limit}; {rest}" if rest and not view.vitals else limit
        known = view.account.limit.known
        found.append(("limit", told + (f" [{known}]" if known else ""), BRIGHT))
        if (worst := words.worst_replica(view.account)) is not None:
            found.append(("replica", worst, BRIGHT))
    if view.state is not None and view.state.kind == "down":
        found.append(("first", _AT_A_DEAD_ONE, BRIGHT))
    change = view.diagnosis.account_change if view.diagnosis else None
    if change is not None:
        found.append(("change", words.change_line(change), BRIGHT))
    rooms = [f"{room.label} {room.room}" for room in view.rooms if room.factor is not None]
    if rooms:
        found.append(("room", " · ".join(rooms), TEXT))
    if view.trial is not None:
        trial = view.trial
        found.append(("now", f"{trial.change}: measuring, {trial.windows} of {trial.needed} windows", NOTE))
    elif view.status:
        found.append(("now", view.status, NOTE))
    return found


def told(view: View) -> tuple[Finding, ...]:
    """Findings that say something happened, strongest first."""
    return tuple(f for f in view.findings if f.verdict not in ("silent", "needs_data") and not f.explained_by)
