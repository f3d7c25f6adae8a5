"""Token-time accounting: the picture everything else hangs on, as a bar and in numbers."""

from __future__ import annotations

from textual.app import ComposeResult

from kvscope.format import clip, quantity
from kvscope.signals.reading import Missing, Reading
from kvscope.tui.palette import BRIGHT, DIM, FAINT, TEXT, paint, part_colour
from kvscope.tui.panels.panel import Panel
from kvscope.tui.widgets.canvas import Canvas, Line
from kvscope.tui.widgets.stacked_bar import StackedBar
from kvscope.view import Share, View

_COLUMNS = (("per token", 28), ("share", 40), ("baseline", 52), ("change", 64))


class AccountingPanel(Panel):
    TITLE = "Where one output token's time goes"
    SLOT = "top"
    READS = ("accounting", "token_time", "request_path", "request_time")

    def compose(self) -> ComposeResult:
        yield StackedBar()

    def show(self, view: View) -> None:
        total, parts, title = view.token_time, view.accounting, self.TITLE
        if _unknown(parts) and not _unknown(view.request_path):
            total, parts = view.request_time, view.request_path
            title = "Where a request's time goes (this engine tells no more)"
            self.styles.height = 3 + (total is not None and isinstance(total.baseline, Reading))
        else:
            self.styles.clear_rule("height")
        self.border_title = title
        now = total.now.value if total and isinstance(total.now, Reading) else None
        base = total.baseline.value if total and isinstance(total.baseline, Reading) else None
        self.query_one(StackedBar).show(parts, now, base)


def _unknown(parts: tuple[Share, ...]) -> bool:
    return all(isinstance(part.share, Missing) for part in parts)


class PartsTable(Canvas):
    """One row per part; the bar at the right is the share again, for the eye."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: tuple[Share, ...] = ()
        self.total = ""

    def draw(self, width: int, height: int) -> list[Line]:
        rows = [Line(width) for _ in range(height)]
        if not rows:
            return rows
        for title, end in _COLUMNS:
            rows[0].put_right(end, title, paint(DIM))
        if not self.parts:
            rows[min(1, height - 1)].put(1, "No step times read yet", paint(DIM))
        for index, (row, part) in enumerate(zip(rows[1:], self.parts, strict=False)):
            self._part(row, part, part_colour(part.name, index), width)
        if self.total and len(self.parts) + 1 < height:
            rows[len(self.parts) + 1].put(3, self.total, paint(BRIGHT, bold=True))
        return rows

    def _part(self, row: Line, part: Share, colour: str, width: int) -> None:
        row.put(1, "▒" if part.name == "unaccounted" else "█", paint(colour))
        row.put(3, part.label, paint(TEXT))
        if isinstance(part.share, Missing):
            text = f"unknown: {part.share.reason}" + (f"; {part.share.remedy}" if part.share.remedy else "")
            row.put(18, clip(text, width - 19), paint(FAINT))
            return
        if part.seconds_per_token is not None:
            row.put_right(28, quantity(part.seconds_per_token, "s"), paint(TEXT))
        row.put_right(40, f"{part.share * 100:.1f} %", paint(BRIGHT, bold=True))
        if part.baseline is not None:
            row.put_right(52, f"{part.baseline * 100:.1f} %", paint(DIM))
            points = (part.share - part.baseline) * 100
            row.put_right(64, f"{'+' if points >= 0 else '−'}{abs(points):.1f} pt", paint(TEXT))
        room = width - 68
        if room >= 8:
            row.put(67, "█" * round(room * min(max(part.share, 0), 1)), paint(colour))


class PartsPanel(Panel):
    TITLE = "Token time in numbers"
    READS = ("accounting", "token_time")
    HELP = "Every part of a decode step per output token, beside its baseline."

    def compose(self) -> ComposeResult:
        yield PartsTable()

    def show(self, view: View) -> None:
        table = self.query_one(PartsTable)
        table.parts = view.accounting
        now = view.token_time.now if view.token_time else None
        table.total = f"one output token {quantity(now.value, 's')}" if isinstance(now, Reading) else ""
        table.redraw()
