"""Where one output token's time goes: a bar now, a bar at the baseline on the same scale, a legend with numbers."""

from __future__ import annotations

from dataclasses import dataclass

from kvscope.format import quantity
from kvscope.signals.reading import Missing
from kvscope.tui.palette import BRIGHT, DIM, FAINT, INK, TEXT, paint, part_colour
from kvscope.tui.widgets.canvas import Canvas, Line
from kvscope.tui.widgets.time_axis import notice
from kvscope.view import Share

_NAMES = 14
_HATCH = "▒"


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: seconds per token it stands for (None when unknown) and the shares of its parts, same order."""

    label: str
    seconds: float | None
    shares: tuple[float | None, ...]


class StackedBar(Canvas):
    """Both bars share one scale of seconds, so a longer bar is a slower token."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.parts: tuple[Share, ...] = ()
        self.bars: tuple[Bar, ...] = ()
        self._full = 0.0

    def show(self, parts: tuple[Share, ...], seconds: float | None, baseline_s: float | None) -> None:
        """Draw the parts, ``seconds`` and ``baseline_s`` being decode seconds per token now and at the baseline."""
        self.parts = parts
        now = tuple(None if isinstance(part.share, Missing) else part.share for part in parts)
        bars = [Bar("now", seconds, now)] if any(share is not None for share in now) else []
        if any(part.baseline is not None for part in parts):
            bars.append(Bar("was", baseline_s, tuple(part.baseline for part in parts)))
        self.bars = tuple(bars)
        self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        """Bars on top, legend in what is left."""
        rows = [Line(width) for _ in range(height)]
        if not self.bars:
            reason = next((part.share for part in self.parts if isinstance(part.share, Missing)), None)
            notice(rows, reason)
            return rows
        room = width - _NAMES - 1
        longest = max((bar.seconds for bar in self.bars if bar.seconds is not None), default=0.0)
        if longest > self._full or longest < self._full * 0.8:
            self._full = longest * 1.02
        y = 0
        thick = 2 if height >= 6 else 1
        for bar in self.bars:
            for extra in range(thick if bar.label == "now" else 1):
                self._bar(rows[y], bar, room, labels=extra == 0)
                y += 1
        self._legend(rows[y + (1 if height >= 6 else 0) :], width)
        return rows

    def _bar(self, row: Line, bar: Bar, room: int, labels: bool) -> None:
        if labels:
            took = quantity(bar.seconds, "s") if bar.seconds is not None else ""
            style = paint(BRIGHT, bold=True) if bar.label == "now" else paint(DIM)
            row.put(0, f"{bar.label:<5}" if not took else bar.label, paint(DIM))
            row.put_right(_NAMES, took, style)
        length = room if bar.seconds is None or not self._full else room * min(bar.seconds / self._full, 1.0)
        done = 0.0
        for index, (part, share) in enumerate(zip(self.parts, bar.shares, strict=True)):
            if not share:
                continue
            start, done = _NAMES + 1 + done * length, done + share
            self._segment(row, part, index, start, _NAMES + 1 + done * length, share if labels else None)

    def _segment(self, row: Line, part: Share, index: int, start: float, end: float, share: float | None) -> None:
        colour = part_colour(part.name, index)
        first, last = round(start), round(end)
        char, style = (_HATCH, paint(colour)) if part.name == "unaccounted" else (" ", paint(INK, colour))
        row.put(first, char * (last - first), style)
        if share is None or last - first < 6:
            return
        number = f"{share * 100:.0f}"
        text = f"{part.label} {number}" if last - first >= len(part.label) + len(number) + 3 else number
        row.put(first + 1, text, paint(INK, colour, bold=True))

    def _legend(self, rows: list[Line], width: int) -> None:
        if not rows:
            return
        longest = max(len(part.label) for part in self.parts)
        across = max(width // (longest + 20), 1)
        wide = -(-len(self.parts) // across) <= len(rows) and any(part.baseline is not None for part in self.parts)
        x, y = 0, 0
        for index, part in enumerate(self.parts):
            cell = longest + 20 if wide else len(part.label) + 9
            if x + cell - 2 > width or (wide and index and index % across == 0):
                x, y = 0, y + 1
            if y >= len(rows):
                return
            self._entry(rows[y], part, index, x, longest if wide else len(part.label), wide)
            x += cell

    def _entry(self, row: Line, part: Share, index: int, x: int, longest: int, wide: bool) -> None:
        known = not isinstance(part.share, Missing)
        mark = _HATCH if part.name == "unaccounted" else "█" if known else "○"
        row.put(x, mark, paint(part_colour(part.name, index) if known else FAINT))
        row.put(x + 2, part.label, paint(TEXT if known else DIM))
        digits = 1 if wide else 0
        shown = f"{part.share * 100:.{digits}f} %" if not isinstance(part.share, Missing) else "?"
        end = x + 3 + longest + (6 if wide else 4)
        row.put_right(end, shown, paint(BRIGHT if known else DIM))
        if wide:
            self._legend_change(row, part, end + 8)

    def _legend_change(self, row: Line, part: Share, end: int) -> None:
        if isinstance(part.share, Missing) or part.baseline is None:
            return
        points = (part.share - part.baseline) * 100
        sign = "+" if points >= 0 else "−"
        text = f"{sign}{abs(points):.0f} pt" if abs(points) >= 0.5 else "="
        row.put_right(end, text, paint(DIM))
