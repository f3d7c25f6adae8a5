"""Time across a chart: which column a moment falls in, segment boundaries, the cursor, the labels beneath."""

from __future__ import annotations

import time

from kvscope.format import clip, duration
from kvscope.signals.reading import Missing
from kvscope.tui.palette import BRIGHT, DIM, FAINT, LINE, NOTE, TEXT, paint
from kvscope.tui.widgets.canvas import Line
from kvscope.view import Span


class TimeAxis:
    """``width`` columns from ``left``; dots and columns sit on a fixed grid of time, so a chart slides unchanged."""

    def __init__(self, window: tuple[float, float], left: int, width: int) -> None:
        self.start_s, self.end_s = window
        self.left, self.width = left, max(width, 1)
        self.dot_s = max(self.end_s - self.start_s, 1e-9) / (self.width * 2)

    def dot(self, time_s: float) -> int:
        """Dot column (two per cell) of a moment, counted from the plot's left edge."""
        return int(time_s // self.dot_s) - int(self.end_s // self.dot_s) + self.width * 2 - 1

    def column(self, time_s: float) -> int:
        """Cell column of a moment on the canvas."""
        return self.left + self.dot(time_s) // 2

    def draw_spans(self, rows: list[Line], spans: tuple[Span, ...], top: int, bottom: int) -> None:
        """A dotted upright where a segment starts."""
        for span in spans:
            column = self.column(span.start_s)
            if self.left < column < self.left + self.width:
                for y in range(top, bottom):
                    rows[y].put(column, "┊", paint(FAINT))

    def draw_names(self, rows: list[Line], spans: tuple[Span, ...], top: int, bottom: int) -> None:
        """Each segment's name at its start, on a row where no curve runs; left out where there is no such row."""
        if len(spans) < 2:
            return
        starts = [max(self.column(span.start_s), self.left) for span in spans]
        for span, start, end in zip(spans, starts, [*starts[1:], self.left + self.width], strict=True):
            name = clip(span.name, end - start - 2)
            if len(name) < min(len(span.name), 4) or bottom - top < 3:
                continue
            place = slice(start + 1, start + 2 + len(name))
            free = [y for y in (top, *range(bottom - 2, top, -1)) if not "".join(rows[y].chars[place]).strip()]
            if free:
                colour = TEXT if span.is_current else DIM if span.is_baseline else FAINT
                rows[free[0]].put(start + 1, name, paint(colour))

    def draw_cursor(self, rows: list[Line], cursor_s: float, top: int, bottom: int) -> None:
        """An upright at the moment being read; curves stay visible through it."""
        column = self.column(cursor_s)
        if self.left <= column < self.left + self.width:
            for y in range(top, bottom):
                if rows[y].chars[column] in " ┊╌┄":
                    rows[y].put(column, "│", paint(NOTE))

    def draw_onset(self, rows: list[Line], onset_s: float, top: int, bottom: int) -> None:
        """Where it began: a mark on the time axis's edge of the plot."""
        column = self.column(onset_s)
        if self.left <= column < self.left + self.width and bottom - top >= 3:
            rows[bottom - 1].put(column, "▲", paint(NOTE, bold=True))
            rows[bottom - 1].put(column + 2, "began", paint(NOTE))

    def draw_times(self, row: Line, past: bool = False, ended: bool = False) -> None:
        """Ages from the left edge to now, to the end, or to the moment in the ``past`` that is shown."""
        right = self.left + self.width
        span = self.end_s - self.start_s
        row.put(self.left, f"−{duration(span)}", paint(FAINT))
        if self.width >= 30:
            middle = f"−{duration(span / 2)}"
            row.put(self.left + (self.width - len(middle)) // 2, middle, paint(FAINT))
        shown = time.strftime("%H:%M:%S", time.localtime(self.end_s)) if past else "end" if ended else "now"
        row.put_right(right, shown, paint(NOTE if past else FAINT))


def notice(rows: list[Line], missing: Missing | None) -> None:
    """Say in the middle of an empty chart what is unknown and what would supply it."""
    if not rows:
        return
    width = len(rows[0].chars)
    texts = [("No data yet", DIM)]
    if missing is not None:
        texts = [(line, DIM) for line in _wrap("Unknown: " + missing.reason, width - 4)]
        if missing.remedy:
            texts += [(line, BRIGHT) for line in _wrap(missing.remedy, width - 4)]
    top = max((len(rows) - len(texts)) // 2, 0)
    for y, (text, colour) in enumerate(texts[: len(rows)], start=top):
        rows[y].put(max((width - len(text)) // 2, 0), clip(text, width), paint(colour))
    if top > 0:
        rows[top - 1].put(max(width // 2 - 1, 0), "╌╌╌", paint(LINE))


def _wrap(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return lines
