"""A widget that is a grid of cells and asks for a repaint of nothing but the cells that changed."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import wrap

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from kvscope.tui.palette import BAD, paint


class Line:
    """One row of cells: a character and a style each."""

    __slots__ = ("chars", "styles")

    def __init__(self, width: int, style: Style | None = None) -> None:
        self.chars = [" "] * width
        self.styles = [style or paint()] * width

    def put(self, x: int, text: str, style: Style) -> None:
        """Write ``text`` from column ``x`` on; what falls outside is cut."""
        for at, char in enumerate(text, start=x):
            if 0 <= at < len(self.chars):
                self.chars[at] = char
                self.styles[at] = style

    def put_right(self, x: int, text: str, style: Style) -> None:
        """Write ``text`` so that it ends before column ``x``."""
        self.put(x - len(text), text, style)

    def changed(self, other: Line) -> tuple[int, int] | None:
        """First and one past the last column that differ from ``other``, or None."""
        if self.chars == other.chars and self.styles == other.styles:
            return None
        width = len(self.chars)
        differ = [x for x in range(width) if self.chars[x] != other.chars[x] or self.styles[x] is not other.styles[x]]
        return (differ[0], differ[-1] + 1) if differ else None

    def strip(self, base: Style) -> Strip:
        """The row as a strip on the widget's own ground."""
        segments: list[Segment] = []
        start, width = 0, len(self.chars)
        while start < width:
            style = self.styles[start]
            end = start + 1
            while end < width and self.styles[end] is style:
                end += 1
            segments.append(Segment("".join(self.chars[start:end]), base + style))
            start = end
        return Strip(segments, width)


class Canvas(Widget):
    """Subclasses implement ``draw``; ``redraw`` compares with what is on screen and repaints the difference."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._rows: list[Line] = []
        self._strips: dict[int, Strip] = {}
        self._ground: Style | None = None
        self._behind: Color | None = None
        self._error: Exception | None = None
        self.repainted_cells = 0
        """Cells asked to be painted again since the start (read by tests and the benchmark)."""

    def draw(self, width: int, height: int) -> list[Line]:
        """Return ``height`` rows of ``width`` cells."""
        raise NotImplementedError

    def fail(self, error: Exception) -> None:
        """Say what went wrong in place of the picture, until it is drawn again."""
        self._error = error
        self.redraw()

    def _drawn(self, width: int, height: int) -> list[Line]:
        """What ``draw`` returns; where it raises, what it raised: one picture must not take the others down."""
        error, self._error = self._error, None
        if error is None:
            try:
                return self.draw(width, height)
            except Exception as raised:
                error = raised
        rows = [Line(width) for _ in range(height)]
        for row, text in zip(rows, wrap(f"not drawn: {type(error).__name__}: {error}", max(width, 8)), strict=False):
            row.put(0, text, paint(BAD))
        return rows

    def redraw(self) -> None:
        """Draw again and refresh only what differs."""
        width, height = self.size
        if not width or not height:
            return
        rows = self._drawn(width, height)
        if not self._fits(width, len(rows)):
            self._show_all(rows, width, height)
            return
        self._refresh_lines(self._differences(rows))

    def _fits(self, width: int, height: int) -> bool:
        """Whether what was drawn last has this size."""
        return len(self._rows) == height and (not self._rows or len(self._rows[0].chars) == width)

    def _differences(self, rows: list[Line]) -> Iterable[Region]:
        for y, (new, old) in enumerate(zip(rows, self._rows, strict=True)):
            span = new.changed(old)
            if span is not None:
                self._rows[y] = new
                self._strips.pop(y, None)
                self.repainted_cells += span[1] - span[0]
                yield Region(span[0], y, span[1] - span[0], 1)

    def _refresh_lines(self, regions: Iterable[Region]) -> None:
        found = tuple(regions)
        if found:
            self.refresh(*found)

    def _show_all(self, rows: list[Line], width: int, height: int) -> None:
        self._rows = rows
        self._strips.clear()
        self.repainted_cells += width * height
        self.refresh()

    def on_resize(self) -> None:
        """A new size needs every cell, unless it was drawn at that size already."""
        width, height = self.size
        if width and height and not self._fits(width, height):
            self._show_all(self._drawn(width, height), width, height)

    def notify_style_update(self) -> None:
        """Colours of the theme changed: strips carry the ground, so they are stale."""
        self._strips.clear()
        self._ground = self._behind = None
        super().notify_style_update()

    def render_line(self, y: int) -> Strip:
        """One row, from the cache."""
        if self._ground is None:
            self._ground = self.rich_style
        if y >= len(self._rows):
            return Strip.blank(self.size.width, self._ground)
        strip = self._strips.get(y)
        if strip is None:
            strip = self._strips[y] = self._rows[y].strip(self._ground)
        return strip

    def render_lines(self, crop: Region) -> list[Strip]:
        """Rows as the screen asks for them.

        A canvas has no border, padding or opacity of its own, so what the base class does for those is left out: a
        third of a tick's cost. Filters (NO_COLOR among them) are applied as there. What was never drawn is drawn here,
        so that the first frame is whole.
        """
        width, height = self.size
        if not self._rows and width and height:
            self._rows = self._drawn(width, height)
            self.repainted_cells += width * height
        strips = [self.render_line(y) for y in crop.line_range]
        if self._behind is None:
            self._behind = self.background_colors[1]
        for line_filter in self.get_line_filters():
            strips = [strip.apply_filter(line_filter, self._behind) for strip in strips]
        if crop.column_span != (0, self.size.width):
            strips = [strip.crop(crop.x, crop.right) for strip in strips]
        return strips
