"""Single numbers: the header strip, the vital signs in lines, and a screen's signals, each beside its baseline."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from kvscope.format import Steady, clip, quantity, signed
from kvscope.screens.reader import MEASURING
from kvscope.signals.reading import Missing, Reading
from kvscope.tui.palette import BAD, BRIGHT, DIM, FAINT, GOOD, NOTE, TEXT, paint
from kvscope.tui.panels.panel import Panel
from kvscope.tui.widgets.canvas import Canvas, Line
from kvscope.view import Headline, View
from kvscope.vitals import Vital

_AT = 10
_TONES = {"": TEXT, "bad": BAD, "note": NOTE}


class VitalLines(Canvas):
    """Label, then the parts that fit; what the numbers are of stands at the right of the first line."""

    vitals: tuple[Vital, ...] = ()
    over = ""

    def draw(self, width: int, height: int) -> list[Line]:
        rows = [Line(width) for _ in range(height)]
        for at, (row, vital) in enumerate(zip(rows, self.vitals, strict=False)):
            row.put(1, vital.label, paint(FAINT))
            room = width - 1 - (len(self.over) + 2 if at == 0 else 0)
            x = _AT
            for index, (text, tone) in enumerate(vital.parts):
                gap = " · " if index else ""
                if x + len(gap) + len(text) > room and index:
                    break
                row.put(x, gap, paint(FAINT))
                row.put(x + len(gap), clip(text, room - x - len(gap)), paint(_TONES[tone], bold=tone == "bad"))
                x += len(gap) + len(text)
        if rows and self.vitals:
            rows[0].put_right(width - 1, self.over, paint(DIM))
        return rows


class VitalsPanel(Panel):
    TITLE = "Vital signs"
    SLOT = "top"
    TITLED = False
    READS = ("vitals", "over")

    def compose(self) -> ComposeResult:
        yield VitalLines()

    def show(self, view: View) -> None:
        lines = self.query_one(VitalLines)
        lines.vitals, lines.over = view.vitals, view.over
        self.styles.height = max(len(view.vitals), 1)
        lines.redraw()


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
                row.put(label, clip(fact.now.reason, width - label), paint(FAINT))
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
        asked = view.page.facts if view.page else ()
        facts.facts = tuple(_told(asked))
        untold = len(asked) - len(facts.facts)
        self.border_subtitle = f"{untold} not told: kvscope coverage" if untold else ""
        facts.redraw()


_NARROWEST = 11
_WITH_BASELINE = 21
"""Columns a tile needs to show what its number was as well as how far it moved."""
_SPARED = ("running_requests", "waiting_requests")
"""Left out first where the strip is too narrow for all."""


class Tiles(Canvas):
    """One tile per headline: name, value, change; with room to spare also the baseline's own value."""

    def __init__(self) -> None:
        super().__init__()
        self.headlines: tuple[Headline, ...] = ()
        self._steady = Steady()

    def show(self, headlines: tuple[Headline, ...]) -> None:
        """Draw the tiles again."""
        self.headlines = headlines
        self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        rows = [Line(width) for _ in range(height)]
        if not self.headlines:
            return rows
        x = 1
        for headline, cell in _fitted(_told(self.headlines) or list(self.headlines), width - 1):
            self._tile(rows, headline, x, cell - 1)
            x += cell
        return rows

    def _tile(self, rows: list[Line], headline: Headline, x: int, width: int) -> None:
        end = x + width
        rows[0].put_right(end, clip(headline.label, width), paint(DIM))
        now = headline.now
        if isinstance(now, Missing):
            word = MEASURING if now.reason == MEASURING else "unknown"
            rows[1].put_right(end, word, paint(FAINT))
            if word == "unknown" and width >= 19:
                rows[2].put_right(end, clip(now.reason, width), paint(FAINT))
            return
        scale = self._steady.scale(headline.name, now.value, now.unit)
        roomy = width >= 19
        error = scale.number(now.error)
        error = f" ± {error}" if roomy and error.strip("0.") else ""
        rows[1].put_right(end, scale.unit, paint(DIM))
        at = end - len(scale.unit) - (1 if scale.unit else 0)
        rows[1].put_right(at, error, paint(FAINT))
        rows[1].put_right(at - len(error), scale.number(now.value), paint(BRIGHT, bold=True))
        text, colour = change_of(headline, "" if width < 12 else " ")
        rows[2].put_right(end, text, paint(colour, bold=colour in (GOOD, BAD)))
        if isinstance(headline.baseline, Reading) and width >= _WITH_BASELINE:
            was = "was " + scale.number(headline.baseline.value)
            rows[2].put_right(end - 12, was if len(was) <= width - 12 else "", paint(DIM))


def _told(numbers: tuple[Headline, ...]) -> list[Headline]:
    """Return those that are known, or will be in a moment."""
    return [one for one in numbers if not isinstance(one.now, Missing) or one.now.reason == MEASURING]


def _fitted(known: list[Headline], width: int) -> list[tuple[Headline, int]]:
    """Tiles with their columns: alike where every name fits so, else each as wide as its name. No name is cut."""
    needs = [max(_NARROWEST, len(one.label) + 1) for one in known]
    if len(known) > 1 and sum(needs) > width:
        kept = [one for one in known if one.name not in _SPARED]
        return _fitted(kept if 0 < len(kept) < len(known) else known[:-1], width)
    even = width // len(known)
    spare = max(width - sum(needs), 0) // len(known)
    return [(one, even if max(needs) <= even else need + spare) for one, need in zip(known, needs, strict=True)]


class HeadlinesPanel(Panel):
    TITLE = "Headlines"
    SLOT = "top"
    TITLED = False
    READS = ("headlines",)

    def compose(self) -> ComposeResult:
        yield Tiles()

    def show(self, view: View) -> None:
        self.query_one(Tiles).show(view.headlines)


def change_of(headline: Headline, gap: str = " ") -> tuple[str, str]:
    """The change with an arrow for its direction and a mark for good or bad, and the colour that says the same."""
    if headline.change is None:
        return "" if headline.baseline is None else "no baseline" if gap else "–", FAINT
    text = signed(headline.change, headline.in_points)
    if not headline.sure:
        return f"≈{gap}{text}  ", DIM
    arrow = "▲" if headline.change > 0 else "▼"
    if headline.better == 0:
        return f"{arrow}{gap}{text}  ", TEXT
    good = (headline.change > 0) == (headline.better > 0)
    return (f"{arrow}{gap}{text} ✓", GOOD) if good else (f"{arrow}{gap}{text} ✗", BAD)
