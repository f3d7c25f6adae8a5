"""Amounts and what they consist of: a bar each, every part with its number."""

from __future__ import annotations

from textual.app import ComposeResult

from kvscope.format import clip, quantity
from kvscope.signals.reading import Missing
from kvscope.tui.palette import BRIGHT, DIM, FAINT, INK, NOTE, TEXT, paint, part_colour
from kvscope.tui.panels.panel import Panel
from kvscope.tui.widgets.canvas import Canvas, Line
from kvscope.view import View, Whole


class Wholes(Canvas):
    """Draws them beneath each other: name and amount, the bar, the parts in numbers, what is told of it."""

    def __init__(self) -> None:
        super().__init__()
        self.wholes: tuple[Whole, ...] = ()
        self.empty = ""

    def draw(self, width: int, height: int) -> list[Line]:
        rows = [Line(width) for _ in range(height)]
        if not self.wholes and rows:
            text = clip(self.empty or "No data yet", width)
            rows[height // 2].put(max((width - len(text)) // 2, 0), text, paint(DIM))
        y = 0
        for whole in self.wholes:
            y += self._whole(rows[y:], whole, width)
        return rows

    def _whole(self, rows: list[Line], whole: Whole, width: int) -> int:
        """Draw one, and return how many rows it took."""
        if not rows:
            return 0
        rows[0].put(0, whole.label, paint(DIM))
        if isinstance(whole.parts, Missing):
            words = f"unknown: {whole.parts.reason}"
            rows[0].put(len(whole.label) + 2, clip(words, width - len(whole.label) - 2), paint(TEXT))
            if len(rows) > 1 and whole.parts.remedy:
                rows[1].put(len(whole.label) + 2, clip(whole.parts.remedy, width - len(whole.label) - 2), paint(DIM))
            return 2
        total = sum(amount for _, _, amount in whole.parts)
        rows[0].put_right(width, _amount(total, whole.unit), paint(BRIGHT, bold=True))
        if len(rows) > 1 and total > 0:
            self._bar(rows[1], whole.parts, total, width)
        y = 2 + self._legend(rows[2:], whole, total, width)
        for line in whole.told:
            if y < len(rows):
                rows[y].put(
                    0, clip(line, width), paint(NOTE if line.startswith(("turns: unk", "stranded: unk")) else DIM)
                )
                y += 1
        return y + (1 if y + 5 < len(rows) else 0)

    def _bar(self, row: Line, parts: tuple[tuple[str, str, float], ...], total: float, width: int) -> None:
        done = 0.0
        for index, (name, label, amount) in enumerate(parts):
            start, done = round(done / total * width), done + amount
            end, colour = round(done / total * width), part_colour(name, index)
            hatched = name in ("free", "stranded")
            char, style = ("░" if name == "free" else "▒", paint(colour)) if hatched else (" ", paint(INK, colour))
            row.put(start, char * (end - start), style)
            if not hatched and end - start >= len(label) + 2:
                row.put(start + 1, label, paint(INK, colour, bold=True))

    def _legend(self, rows: list[Line], whole: Whole, total: float, width: int) -> int:
        assert not isinstance(whole.parts, Missing)
        x = y = 0
        for index, (name, label, amount) in enumerate(whole.parts):
            share = f"{amount / total * 100:.0f} %" if total > 0 else ""
            text = f"{label} {_amount(amount, whole.unit)} {share}"
            if x and x + len(text) + 2 > width:
                x, y = 0, y + 1
            if y >= len(rows):
                return y
            mark = "░" if name == "free" else "▒" if name == "stranded" else "█"
            rows[y].put(x, mark, paint(part_colour(name, index)))
            rows[y].put(x + 2, clip(text, width - x - 2), paint(TEXT if amount else FAINT))
            x += len(text) + 4
        return y + 1


class WholesPanel(Panel):
    TITLE = "Pool"
    READS = ("page",)
    HELP = "What a whole amount consists of."

    def __init__(self, title: str, empty: str) -> None:
        super().__init__("wholes", title)
        self.empty = empty

    def compose(self) -> ComposeResult:
        yield Wholes()

    def show(self, view: View) -> None:
        wholes = self.query_one(Wholes)
        wholes.wholes, wholes.empty = (view.page.wholes if view.page else ()), self.empty
        wholes.redraw()


def _amount(value: float, unit: str) -> str:
    return f"{value:,.0f} {unit}".replace(",", " ") if unit in ("entries", "tokens") else quantity(value, unit)
