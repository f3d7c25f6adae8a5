"""The second reader of an expression: a line of points. What its bins hold sums to the segment's reading."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from kvscope.signals.algebra import (
    Calc,
    Chosen,
    Clip,
    Expr,
    FirstOf,
    Fraction,
    Gauge,
    Increase,
    Procedure,
    Rate,
    Ratio,
    needs,
)
from kvscope.signals.evaluate import apply, evaluate, leaves, pair
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.samples import Cell, Samples
from kvscope.store import Segment, Store

Values = list[float | None]
KEEP_BINS = 2048
"""Bins that a line remembers; older ones are read again where somebody goes back to them."""


def curve(expr: Expr, samples: Samples, cuts: Sequence[float]) -> Values | Missing:
    """Return the value between every two times of ``cuts``; None where nothing was told, Missing where nowhere."""
    match expr:
        case Rate() | Ratio() | Gauge() | Fraction():
            found = bins(expr, samples, cuts)
            if isinstance(found, Missing):
                return found
            return [top / bottom if bottom > 0 else None for top, bottom in found]
        case Increase(amount=amount):
            flow = samples.flow(amount)
            if isinstance(flow, Missing):
                return flow
            told = [start < flow.end_s and end > flow.start_s for start, end in pairwise(cuts)]
            return [grown if known else None for grown, known in zip(flow.grown(cuts), told, strict=True)]
        case FirstOf(options=options):
            lines = [curve(option, samples, cuts) for option in options]
            drawn = [line for line in lines if not isinstance(line, Missing) and any(v is not None for v in line)]
            return drawn[0] if drawn else lines[0]
        case Calc() | Clip():
            return _calculated(expr, samples, cuts)
        case Chosen(function=choose):
            chosen = choose(samples)
            return chosen if isinstance(chosen, Missing) else curve(chosen, samples, cuts)
        case Procedure(drawn=Expr() as drawn):
            return curve(drawn, samples, cuts)
    return _piece_by_piece(expr, samples, cuts)


def bins(
    expr: Rate | Ratio | Gauge | Fraction, samples: Samples, cuts: Sequence[float]
) -> list[tuple[float, float]] | Missing:
    """Return both amounts of each bin: their sums, one over the other, are the reading."""
    found = pair(expr, samples)
    if isinstance(found, Missing):
        return found
    start, end = found.span
    inside = [min(max(cut, start), max(start, end)) for cut in cuts]
    return list(zip(found.top.grown(inside), found.bottom.grown(inside), strict=True))


def _calculated(expr: Expr, samples: Samples, cuts: Sequence[float]) -> Values | Missing:
    lines: dict[Expr, Values] = {}
    for leaf in leaves(expr):
        line = curve(leaf, samples, cuts)
        if isinstance(line, Missing):
            return line
        lines[leaf] = line
    found: Values = []
    for index in range(len(cuts) - 1):
        values = {leaf: value for leaf, line in lines.items() if (value := line[index]) is not None}
        found.append(apply(expr, values) if len(values) == len(lines) else None)
    return found


def _piece_by_piece(expr: Expr, samples: Samples, cuts: Sequence[float]) -> Values | Missing:
    found: list[Reading | Missing] = []
    for start, end in pairwise(cuts):
        piece = replace(
            samples.segment, start_s=max(start, samples.segment.start_s), end_s=min(end, samples.segment.end_s)
        )
        found.append(evaluate(expr, samples.over(piece)))
    if all(isinstance(one, Missing) for one in found):
        return next((one for one in found if isinstance(one, Missing)), Missing("no time passed"))
    return [one.value if isinstance(one, Reading) else None for one in found]


class Curve:
    """One expression's line on a time axis of bins of ``bin_s``; a bin that is over is read once.

    Bin ``i`` holds the times from ``i * bin_s`` to the next. ``cell`` draws one cell of it.
    """

    def __init__(self, expr: Expr, bin_s: float, cell: Cell | None = None) -> None:
        self._expr, self._cell, self.bin_s = expr, cell, bin_s
        self._metrics = needs(expr)
        self._known: dict[int, float | None] = {}
        self._missing: Missing | None = None
        self._open_from = 0

    def points(self, store: Store, start_s: float, end_s: float) -> tuple[tuple[float, float], ...] | Missing:
        """Return (middle of a bin, value) from ``start_s`` to ``end_s``; Missing where nobody ever told a point."""
        first, last = math.floor(start_s / self.bin_s + 1e-9), math.ceil(end_s / self.bin_s - 1e-9)
        unread = [index for index in range(first, last) if index not in self._known or index >= self._open_from]
        if unread:
            self._read(store, unread[0], unread[-1] + 1)
            self._open_from = self._told_until(store)
        found = ((index, self._known.get(index)) for index in range(first, last))
        told = tuple(((index + 0.5) * self.bin_s, value) for index, value in found if value is not None)
        if not told and self._missing is not None:
            return self._missing
        if len(self._known) > KEEP_BINS:
            self._known = {index: self._known[index] for index in range(first, last) if index in self._known}
        return told

    def _read(self, store: Store, first: int, last: int) -> None:
        cuts = [index * self.bin_s for index in range(first, last + 1)]
        samples = Samples(store, Segment("", cuts[0], cuts[-1]), self._cell, drawn=True)
        found = curve(self._expr, samples, cuts)
        self._missing = found if isinstance(found, Missing) else None
        values = [None] * (last - first) if isinstance(found, Missing) else found
        self._known.update(zip(range(first, last), values, strict=True))

    def _told_until(self, store: Store) -> int:
        """The bin before the one in which a series of this line spoke last: what comes next may change it."""
        newest = [store.newest(name) for metric in self._metrics for name in (metric, f"{metric}.count")]
        told = [t for t in newest if t is not None]
        return int(min(told) // self.bin_s) - 1 if told else 0
