"""A table's columns: one unit each, said once in the heading, and widths that grow with the cells and never shrink."""

from __future__ import annotations

import time

from kvscope.signals.reading import Missing
from kvscope.tui.format import Scale, Steady, quantity
from kvscope.view import Table

Cell = float | str | None
_WIDEST = 16
"""A column of numbers is no wider than this, however much room there is: eyes must find the next number."""
_LEAST_TEXT, _LEAST_WORD = 14, 9
"""A sentence and a word cut to less than this say nothing: the column is left out. Numbers are never cut."""
_WORDS = ("text", "sign")
_PLAIN = (*_WORDS, "time", "tokens", "entries", "requests", "")


class Columns:
    """Headings, cells and places of the columns of one table."""

    def __init__(self) -> None:
        self.headings: tuple[str, ...] = ()
        self._units: tuple[tuple[str, str], ...] = ()
        self._scales: list[Scale | None] = []
        self._natural: list[int] = []
        self._worded: set[int] = set()
        self._steady = Steady()

    def fit(self, table: Table) -> None:
        """Take in what a table now holds: the unit of a column follows its middle value."""
        if table.columns != self._units:
            self._units, self._natural = table.columns, [0] * len(table.columns)
            self._steady = Steady()
        rows = () if isinstance(table.rows, Missing) else table.rows
        cells = [[row[index] for row in rows] for index in range(len(self._units))]
        self._scales = [self._scale(index, column) for index, column in enumerate(cells)]
        self.headings = tuple(self._heading(index) for index in range(len(self._units)))
        self._worded = {i for i, column in enumerate(cells) if any(isinstance(value, str) for value in column)}
        for index, column in enumerate(cells):
            longest = max((len(text) for text in self._longest(index, column)), default=1)
            self._natural[index] = max(self._natural[index], longest, len(self.headings[index]) + 1)

    def _scale(self, index: int, column: list[Cell]) -> Scale | None:
        name, unit = self._units[index]
        known = sorted(abs(value) for value in column if isinstance(value, float | int) and value)
        if unit in _PLAIN or not known:
            return None
        return self._steady.scale(f"{index} {name}", known[len(known) // 2], unit)

    def _heading(self, index: int) -> str:
        name, scale = self._units[index][0], self._scales[index]
        return name if scale is None or not scale.unit or name.endswith(scale.unit) else f"{name} {scale.unit}"

    def _longest(self, index: int, column: list[Cell]) -> list[str]:
        """The cells that may be the longest: every text, and of numbers the ends."""
        numbers = [value for value in column if isinstance(value, float | int)]
        texts = [value for value in column if isinstance(value, str)]
        return [*texts, *(self.written(index, value) for value in ((min(numbers), max(numbers)) if numbers else ()))]

    def written(self, index: int, value: Cell) -> str:
        """A cell as it is drawn, without its unit where the heading says it."""
        if value is None:
            return "?"
        if isinstance(value, str):
            return value
        unit, scale = self._units[index][1], self._scales[index]
        if scale is not None:
            return scale.number(value)
        if unit == "time":
            return time.strftime("%H:%M:%S", time.localtime(value))
        if unit in ("tokens", "entries", "requests"):
            return f"{value:.0f}" if unit != "requests" or value == int(value) else f"{value:.1f}"
        return quantity(value, unit) if unit in ("", "text") else f"{value:g}"

    def edges(self, width: int) -> list[tuple[int, int]]:
        """Start and end of every column, both 0 for one that has no room; the last column of words takes the rest."""
        words = [index for index, (_, unit) in enumerate(self._units) if unit == "text"]
        sizes = [2 if unit == "sign" else size + 1 for size, (_, unit) in zip(self._natural, self._units, strict=True)]
        room = width - 1
        for index in reversed(range(1, len(sizes))):
            over = sum(sizes) - room
            if over > 0:
                kept = sizes[index] - over
                sizes[index] = kept if kept >= self._least(index) else 0
        sizes[:1] = [min(size, room) for size in sizes[:1]]
        self._widen(sizes, room, words)
        found, x = [], 1
        for size in sizes:
            found.append((x, x + size) if size else (0, 0))
            x += size
        return found

    def _least(self, index: int) -> int:
        """How far a column can be cut."""
        if self._units[index][1] == "text":
            return _LEAST_TEXT
        return _LEAST_WORD if index in self._worded else self._natural[index] + 1

    def _widen(self, sizes: list[int], room: int, words: list[int]) -> None:
        """Give numbers air, and the last column of words what is left."""
        shown = [index for index, size in enumerate(sizes) if size]
        each = (room - sum(sizes)) // max(len(shown), 1)
        for index in shown:
            unit = self._units[index][1]
            if unit == "text":
                sizes[index] += min(each, 2)
            elif unit != "sign":
                sizes[index] = max(min(sizes[index] + each, _WIDEST), sizes[index])
        last = next((index for index in reversed(words) if sizes[index]), None)
        if last is not None:
            sizes[last] += max(room - sum(sizes), 0)
