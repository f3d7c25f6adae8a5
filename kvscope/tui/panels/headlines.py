"""The header strip: the few numbers that say whether the service is well, each beside its baseline."""

from __future__ import annotations

from textual.app import ComposeResult

from kvscope.format import Steady, clip, signed
from kvscope.signals.reading import Missing, Reading
from kvscope.tui.palette import BAD, BRIGHT, DIM, FAINT, GOOD, TEXT, paint
from kvscope.tui.panels.panel import Panel
from kvscope.tui.widgets.canvas import Canvas, Line
from kvscope.view import Headline, View

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
        room = max((width - 1) // _NARROWEST, 1)
        told = [one for one in self.headlines if not isinstance(one.now, Missing) or one.now.reason == "measuring"]
        known = told or list(self.headlines)
        shown = [one for one in known if len(known) <= room or one.name not in _SPARED]
        cell = (width - 1) // len(shown[:room])
        for index, headline in enumerate(shown[:room]):
            self._tile(rows, headline, 1 + index * cell, cell - 1)
        return rows

    def _tile(self, rows: list[Line], headline: Headline, x: int, width: int) -> None:
        end = x + width
        rows[0].put_right(end, clip(headline.label, width), paint(DIM))
        now = headline.now
        if isinstance(now, Missing):
            word = "measuring" if now.reason == "measuring" else "unknown"
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
