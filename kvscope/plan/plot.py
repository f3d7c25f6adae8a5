"""A plan drawn, with characters or as one HTML page: bytes of a request by its context, the least time of a token."""

from __future__ import annotations

from html import escape

from kvscope.plan.bound import Bound
from kvscope.plan.plan import Plan
from kvscope.result.html import STYLE, svg
from kvscope.result.result import Plot, Series

WIDTH = 76
GIB, MILLI = 1 << 30, 1e3
FEWEST = 3
"""Fewer lengths are no curve."""


def plots(plan: Plan, bound: Bound | None) -> tuple[Plot, ...]:
    """Return what can be drawn of a plan: nothing where it has too few lengths."""
    if len(plan.points) < FEWEST:
        return ()
    xs = tuple(float(point.context) for point in plan.points)
    held = Series("a request", xs, tuple(point.request_bytes / GIB for point in plan.points))
    found = [Plot("what a request takes on one GPU", "tokens of context", "bytes", "GiB", (held,), even=True)]
    if bound is not None:
        batches = [1] + ([bound.fits] if bound.fits and bound.fits > 1 else [])
        series = tuple(
            Series(f"{batch} at once", xs, tuple(bound.seconds(batch, int(x)) * MILLI for x in xs)) for batch in batches
        )
        title = f"a token cannot be faster on {bound.device.name}"
        found.append(Plot(title, "tokens of context", "time of a token", "ms", series, even=True))
    return tuple(found)


def drawn(plan: Plan, bound: Bound | None) -> list[str]:
    """Return the plots drawn with characters."""
    from kvscope.result.text import plot_text

    return [line for plot in plots(plan, bound) for line in ["", *plot_text(plot, WIDTH, colour=False).splitlines()]]


def as_html(plan: Plan, bound: Bound | None, text: str) -> str:
    """Return the plan's text and its plots as a page; whatever came from a file or a server is escaped."""
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
