"""A plan as one HTML page that needs no network: the same text, and the plots as drawings."""

from __future__ import annotations

from html import escape

from kvscope.plan.bound import Bound
from kvscope.plan.plan import Plan
from kvscope.plan.plot import plots
from kvscope.result.html import STYLE, svg


def as_html(plan: Plan, bound: Bound | None, text: str) -> str:
    """Return the page; whatever came from a file or a server is escaped."""
    title = f"{plan.name}: KV cache, {plan.engine_name}"
    return "".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><h1>{escape(title)}</h1>",
            f'<div class="scroll"><pre>{escape(text)}</pre></div>',
            *(f"<h2>{escape(plot.title)}</h2>{svg(plot)}" for plot in plots(plan, bound)),
            "</body></html>",
        ]
    )
