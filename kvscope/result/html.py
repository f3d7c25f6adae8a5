"""A result as one HTML page that needs no network: sentences, plots, tables, settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from html import escape

from kvscope.result.result import Plot, Result, Series, Table
from kvscope.result.text import cell_text
from probes.version import __version__

STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --dim: #5b6675; --line: #d9dee5; --page: #ffffff; --band: #f4f6f9;
  --warn: #9a3b00; --warnband: #fff3e8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --dim: #9aa5b4; --line: #333c48; --page: #14181e;
  --band: #1c222b; --warn: #ffb380; --warnband: #33231a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 64rem; padding: 2rem 1.25rem 4rem; background: var(--page); color: var(--ink);
  font: 15px/1.55 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.05rem; margin: 2.25rem 0 .5rem; }
.tags { color: var(--dim); margin: 0 0 1.5rem; } .tags span { margin-right: 1.25rem; white-space: nowrap; }
.says { margin: .35rem 0; } .warns { margin: .6rem 0; padding: .6rem .9rem; border-left: 4px solid var(--warn);
  background: var(--warnband); color: var(--warn); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100%; }
th, td { text-align: right; padding: .35rem .55rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { font-weight: 600; color: var(--dim); background: var(--band); } .word { text-align: left; }
svg { width: 100%; height: auto; display: block; } svg text { font: 12px system-ui, sans-serif; fill: var(--dim); }
svg .grid { stroke: var(--line); } svg .y { text-anchor: end; } svg .x, svg .label { text-anchor: middle; }
svg .legend { fill: var(--ink); } footer { margin-top: 3rem; color: var(--dim); font-size: .85rem; }
"""


def render(result: Result) -> str:
    """Return the page."""
    return "".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(result.title)}</title><style>{STYLE}</style></head><body>",
            f"<h1>{escape(result.title)}</h1>",
            '<p class="tags">',
            *(f"<span>{escape(key)}: {escape(value)}</span>" for key, value in sorted(result.tags.items())),
            "</p>",
            *(f'<p class="warns">{escape(text)}</p>' for text in result.warns),
            *(f'<p class="says">{escape(text)}</p>' for text in result.says),
            *(f"<h2>{escape(plot.title)}</h2>{svg(plot)}" for plot in result.plots),
            *(part for table in result.tables for part in _table(table)),
            *_settings(result),
            f"<footer>kvscope bench {escape(result.bench)}, version {escape(__version__)}</footer></body></html>\n",
        ]
    )


def _table(table: Table) -> Iterator[str]:
    words = [all(isinstance(row[i], str) for row in table.rows) for i in range(len(table.columns))]
    css = ["word" if word else "" for word in words]
    yield f'<h2>{escape(table.title)}</h2><div class="scroll"><table><tr>'
    yield from (f'<th class="{style}">{escape(column)}</th>' for column, style in zip(table.columns, css, strict=True))
    yield "</tr>"
    for row in table.rows:
        cells = zip(row, table.units, css, strict=True)
        yield "<tr>" + "".join(f'<td class="{c}">{escape(cell_text(v, u))}</td>' for v, u, c in cells) + "</tr>"
    yield "</table></div>"


def _settings(result: Result) -> Iterator[str]:
    if result.settings:
        yield '<h2>Settings</h2><div class="scroll"><table>'
        for key, value in result.settings.items():
            yield f'<tr><th class="word">{escape(key)}</th><td class="word">{escape(_said(value))}</td></tr>'
        yield "</table></div>"


def _said(value: object) -> str:
    return (", ".join(map(str, value)) or "none") if isinstance(value, (list, tuple)) else str(value)


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
