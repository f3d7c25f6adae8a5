"""A screen's numbers, one a row: value, error, baseline, change; unknown ones say what would supply them."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from kvscope.format import Steady, clip, quantity
from kvscope.signals.reading import Missing, Reading
from kvscope.tui.palette import BRIGHT, DIM, FAINT, paint
from kvscope.tui.panels.headlines import change_of
from kvscope.tui.panels.panel import Panel
from kvscope.tui.widgets.canvas import Canvas, Line
from kvscope.view import Headline, View

_LABEL, _LONGEST = 13, 22
_VALUE, _WAS, _CHANGE = 11, 17, 13
_WIDE = _LONGEST + _VALUE + _WAS + _CHANGE


class Facts(Canvas):
    """Draws headlines beneath each other."""

    def __init__(self) -> None:
        super().__init__()
        self.facts: tuple[Headline, ...] = ()
        self.top = 0
        self._steady = Steady()

    def draw(self, width: int, height: int) -> list[Line]:
        rows = [Line(width) for _ in range(height)]
        wide = width >= _WIDE
        longest = max((len(fact.label) + 1 for fact in self.facts), default=_LABEL)
        label = min(max(longest, _LABEL), _LONGEST, max(width - _VALUE - 8, _LABEL))
        last = max(len(self.facts) - height, 0)
        self.top = min(max(self.top, 0), last)
        if last > self.top and height > 1:
            rows[-1].put(0, f"↓ {last - self.top + 1} more", paint(DIM))
        shown = self.facts[self.top :]
        for row, fact in zip(rows[:-1] if last > self.top and height > 1 else rows, shown, strict=False):
            row.put(0, clip(fact.label, label - 1), paint(DIM))
            if isinstance(fact.now, Missing):
                row.put(label, clip(f"unknown: {fact.now.reason}", width - label), paint(FAINT))
                continue
            scale = self._steady.scale(fact.name, fact.now.value, fact.now.unit)
            row.put_right(label + _VALUE, scale.text(fact.now.value), paint(BRIGHT, bold=True))
            if wide and isinstance(fact.baseline, Reading):
                was = f"was {quantity(fact.baseline.value, fact.baseline.unit)}"
                row.put_right(label + _VALUE + _WAS, was, paint(FAINT))
            change, colour = change_of(fact)
            if fact.change is not None:
                end = label + _VALUE + _WAS + _CHANGE if wide else width
                row.put_right(end, clip(change, end - label - _VALUE), paint(colour))
        return rows


class FactsPanel(Panel, can_focus=True):
    TITLE = "In numbers"
    READS = ("page",)
    HELP = "The screen's signals over the last seconds, beside their baseline."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
    ]

    def action_move(self, rows: int) -> None:
        """Show the numbers further down, or up."""
        facts = self.query_one(Facts)
        facts.top += rows
        facts.redraw()

    def on_mouse_scroll_down(self) -> None:
        """The wheel moves too."""
        self.action_move(1)

    def on_mouse_scroll_up(self) -> None:
        """The wheel moves too."""
        self.action_move(-1)

    def compose(self) -> ComposeResult:
        yield Facts()

    def show(self, view: View) -> None:
        facts = self.query_one(Facts)
        facts.facts = view.page.facts if view.page else ()
        facts.redraw()
