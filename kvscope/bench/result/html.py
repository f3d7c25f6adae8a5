"""A result as one HTML page that needs no network: sentences, plots, tables, settings."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from kvscope.bench.result.result import Result, Table
from kvscope.bench.result.svg import svg
from kvscope.bench.result.text import cell_text
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
