"""A plot as inline SVG: nothing to load, readable in both colour schemes, every point tells its value on hover."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from html import escape

from kvscope.bench.result.result import Plot, Series
from kvscope.bench.result.text import cell_text

WIDTH, HEIGHT = 720, 280
LEFT, RIGHT, TOP, BOTTOM = 86, 150, 14, 46
LETTER = 7
"""Most pixels that a letter of the legend takes on average; the picture widens for long names."""
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's colours, told apart by colour-blind eyes."""


def svg(plot: Plot) -> str:
    """Return the plot; an empty one says so."""
    xs = sorted({x for series in plot.series for x in series.xs})
    ys = [y for series in plot.series for y in series.ys if y is not None]
    if not xs or not ys:
        return f"<p>{escape(plot.title)}: nothing was measured</p>"
    place = _x_places(xs, plot.even)
    ticks = nice_ticks(min(0.0, *ys), max(ys))
    y_of = _Scale(ticks[0], ticks[-1], HEIGHT - BOTTOM, TOP)
    width = WIDTH - RIGHT + max(RIGHT, 38 + LETTER * max(len(series.name) for series in plot.series))
    parts = [
        f'<svg viewBox="0 0 {width} {HEIGHT}" role="img" aria-label="{escape(plot.title, quote=True)}">',
        *(_y_tick(tick, y_of(tick), plot.unit) for tick in ticks),
        *(_x_tick(x, place(x)) for x in (_thinned(xs) if plot.even else _round_between(xs))),
        f'<text class="label" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}">{escape(plot.x)}</text>',
    ]
    for index, series in enumerate(plot.series):
        parts += _line(series, index, place, y_of, plot.unit)
    return "".join([*parts, "</svg>"])


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return rising round numbers that enclose ``low`` and ``high``."""
    if high <= low:
        high = low + (abs(low) or 1.0)
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
    first, last = math.floor(low / step), math.ceil(high / step - 1e-9)
    return [step * index for index in range(first, last + 1)]


class _Scale:
    """Maps values to pixels, straight."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self._low, self._start = low, start
        self._factor = (end - start) / ((high - low) or 1.0)

    def __call__(self, value: float) -> float:
        return self._start + (value - self._low) * self._factor


def _x_places(xs: Sequence[float], even: bool) -> Callable[[float], float]:
    last = float(len(xs) - 1) if even else xs[-1]
    first = 0.0 if even else xs[0]
    x_of = _Scale(first, last if len(xs) > 1 else first + 1, LEFT + 8, WIDTH - RIGHT - 8)
    return (lambda x: x_of(float(xs.index(x)))) if even else x_of


def _thinned(xs: Sequence[float]) -> Sequence[float]:
    return xs[:: -(-len(xs) // 12)]


def _round_between(xs: Sequence[float]) -> Sequence[float]:
    """Round numbers within what was measured; where there are none, its ends."""
    return [tick for tick in nice_ticks(xs[0], xs[-1]) if xs[0] <= tick <= xs[-1]] or [xs[0], xs[-1]]


def _y_tick(value: float, y: float, unit: str) -> str:
    return (
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text class="y" x="{LEFT - 8}" y="{y + 4:.1f}">{escape(cell_text(float(value), unit))}</text>'
    )


def _x_tick(value: float, x: float) -> str:
    return f'<text class="x" x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}">{value:g}</text>'


def _line(series: Series, index: int, place: Callable[[float], float], y_of: _Scale, unit: str) -> Iterator[str]:
    colour = COLOURS[index % len(COLOURS)]
    points = [(place(x), y_of(y), x, y) for x, y in zip(series.xs, series.ys, strict=True) if y is not None]
    if not points:
        return
    if series.joined:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _, _ in points)
        yield f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{path}"/>'
    for x, y, at, value in points:
        told = escape(f"{series.name}, {at:g}: {cell_text(float(value), unit)}")
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"><title>{told}</title></circle>'
    y = TOP + 10 + 20 * index
    yield f'<rect x="{WIDTH - RIGHT + 14}" y="{y - 9}" width="10" height="10" rx="2" fill="{colour}"/>'
    yield f'<text class="legend" x="{WIDTH - RIGHT + 30}" y="{y}">{escape(series.name)}</text>'
