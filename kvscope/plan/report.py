"""A plan as JSON, as text a person reads, and drawn: with characters or as one HTML page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from typing import Any

from kvscope.amounts import amount
from kvscope.plan.bound import Bound, Estimate
from kvscope.plan.kinds import KINDS
from kvscope.plan.plan import Figures, LayerRow, Plan
from kvscope.plan.target import Reported
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


SCHEMA = 1


def as_json(
    plan: Plan, bound: Bound | None, estimates: tuple[Estimate, ...] = (), reported: Reported | None = None
) -> str:
    """Return the plan: one GPU, all of them, layers that are alike, what was assumed."""
    split = plan.ask.split
    content: dict[str, Any] = {
        "schema": SCHEMA,
        "model": plan.name,
        "model_type": plan.ask.model.model_type,
        "engine": plan.engine_name,
        "engine_source": plan.engine.SOURCE,
        "context": plan.ask.context,
        "users": plan.users,
        "kv_dtype": plan.ask.forms.name,
        "deployment": {"tp": split.tp, "pp": split.pp, "dp_attention": split.dp, "ep": split.ep, "gpus": split.gpus},
        "per_gpu": _figures(plan.per_gpu),
        "whole": _figures(plan.whole),
        "layers": [_row(row) for row in plan.rows],
        "assumed": list(plan.assumed),
        "fits": plan.fits,
        "mix_bytes_per_request": plan.mix_bytes,
        "mix_requests_that_fit": plan.mix_fits,
        "memory": _memory(plan),
        "weights": _weights(plan),
        "bound": bound.as_json() if bound else None,
        "reported": _reported(plan, reported),
        "by_length": [
            {
                "context": point.context,
                "request_bytes": point.request_bytes,
                "growing_bytes_per_token": point.growing_bytes_per_token,
                "max_concurrency": point.fits,
            }
            for point in plan.points
        ],
        "formulas": [
            {"name": one.name, "says": one.says, "bytes_per_request": one.bytes_per_request} for one in estimates
        ],
        "rules": list(plan.rules),
    }
    return json.dumps(content, indent=2, ensure_ascii=False)


def _figures(found: Figures) -> dict[str, Any]:
    return {
        "bytes_per_token": found.bytes_per_token,
        "growing_bytes_per_token": _whole_if(found.growing_bytes_per_token),
        "state_bytes_per_request": found.state_bytes_per_request,
        "request_bytes": found.request_bytes,
        "pool_bytes": found.pool_bytes,
        "pool_tokens": found.pool_tokens,
        "max_concurrency": found.max_concurrency,
    }


def _row(row: LayerRow) -> dict[str, Any]:
    layer = row.layer
    return {
        "kind": layer.kind + (" (draft)" if layer.draft else ""),
        "count": row.count,
        "kv_heads": layer.kv_heads,
        "head_dim": layer.latent + layer.rope if layer.latent else layer.key_dim,
        "value_dim": layer.value_dim,
        "window": layer.window,
        "bytes_per_token": _whole_if(row.bytes_per_token),
        "state_bytes": row.state_bytes,
        "request_bytes": row.request_bytes,
    }


def _memory(plan: Plan) -> dict[str, Any] | None:
    found = plan.memory
    if found is None:
        return None
    return {
        "total_bytes": found.total_bytes,
        "weights_bytes": found.weights_bytes,
        "reserve_bytes": found.reserve_bytes,
        "pool_bytes": found.pool_bytes,
        "gpu": found.device.name if found.device else None,
    }


def _weights(plan: Plan) -> dict[str, Any] | None:
    found = plan.ask.model.weights
    if found is None:
        return None
    return {
        "total_bytes": found.total_bytes,
        "parameters": found.parameters,
        "active_parameters": found.active_parameters,
        "how": found.how,
    }


def as_text(
    plan: Plan,
    bound: Bound | None,
    estimates: tuple[Estimate, ...],
    reported: Reported | None,
    explain: bool,
    plots: list[str],
) -> str:
    """Return the plan: first what it weighs and what fits, then the layers; ``plots`` and formulas where asked."""
    beside = _beside(plan, reported)
    lines = [*_head(plan), *beside, *(bound.lines() if bound else ()), "", *_layers(plan), "", *_lengths(plan, bound)]
    lines += plots
    if plan.assumed:
        lines += ["", "assumed:", *(f"  {note}" for note in plan.assumed)]
    if explain:
        lines += ["", *_explained(plan, bound, estimates)]
    return "\n".join(lines)


def _head(plan: Plan) -> Iterator[str]:
    ask, gpu, split = plan.ask, plan.per_gpu, plan.ask.split
    users = f"{plan.users} request{'s' if plan.users > 1 else ''} at once"
    yield f"{plan.name}: {len(ask.model.counted(ask.drafts))} layers, {ask.context} tokens of context, {users}"
    yield f"engine {plan.engine_name}, KV {ask.forms.name}, {_deployment(plan)}"
    whose = "per GPU" if split.gpus > 1 else "one GPU"
    grown = f"{_number(gpu.growing_bytes_per_token)} B for one more token"
    mean = f"{gpu.bytes_per_token} B a token on average"
    yield f"  {whose:<12} {amount(gpu.request_bytes, 'B')} a request, {grown}, {mean}"
    if gpu.state_bytes_per_request:
        yield f"  {'states':<12} {amount(gpu.state_bytes_per_request, 'B')} a request, whatever its length"
    if split.gpus > 1:
        yield f"  {f'all {split.gpus} GPUs':<12} {amount(plan.whole.request_bytes, 'B')} a request, copies included"
    yield f"  {'all requests':<12} {amount(gpu.request_bytes * plan.users, 'B')} {whose}"
    yield from _fit(plan)


def _fit(plan: Plan) -> Iterator[str]:
    gpu, whole = plan.per_gpu, plan.whole
    if gpu.pool_bytes is None or whole.max_concurrency is None:
        return
    if gpu.pool_bytes <= 0:
        yield f"  {'pool':<12} nothing is left for KV: {amount(-gpu.pool_bytes, 'B')} too little"
        return
    held = f"{whole.pool_tokens} tokens, {whole.max_concurrency:.2f} requests of that length"
    yield f"  {'pool':<12} {amount(gpu.pool_bytes, 'B')} per GPU: {held}"
    enough = "all fit" if plan.fits else f"{plan.users - int(whole.max_concurrency)} too many"
    yield f"  {'fit':<12} {int(whole.max_concurrency)} at once, {plan.users} asked: {enough}"
    if plan.mix_bytes is not None:
        told = f", {plan.mix_fits} fit" if plan.mix_fits is not None else ""
        yield f"  {'in the mix':<12} {amount(plan.mix_bytes, 'B')} a request on average{told}"


def _beside(plan: Plan, reported: Reported | None) -> Iterator[str]:
    """What a server says of its pool, beside the count."""
    if reported is None or reported.pool_tokens is None:
        return
    counted = plan.per_gpu.pool_tokens
    apart = f": {(counted / reported.pool_tokens - 1) * 100:+.1f} % counted" if counted else ""
    yield f"  {'reported':<12} {reported.pool_tokens} tokens ({reported.source}){apart}"


def _reported(plan: Plan, reported: Reported | None) -> dict[str, Any] | None:
    if reported is None:
        return None
    return {"source": reported.source, "pool_tokens": reported.pool_tokens, "counted": plan.per_gpu.pool_tokens}


def _layers(plan: Plan) -> Iterator[str]:
    yield f"  {'kind':<16} {'layers':>6} {'KV heads':>8} {'size':>9} {'window':>7} {'B a token':>10} {'a request':>12}"
    for row in plan.rows:
        layer = row.layer
        size = f"{layer.latent}+{layer.rope}" if layer.latent else str(layer.key_dim or "-")
        if layer.value_dim and layer.value_dim != layer.key_dim:
            size = f"{layer.key_dim}/{layer.value_dim}"
        kind = layer.kind + (" draft" if layer.draft else "")
        held = amount(row.request_bytes * row.count, "B")
        yield (
            f"  {kind:<16} {row.count:>6} {layer.kv_heads or '-':>8} {size:>9} {layer.window or '-':>7} "
            f"{_number(row.bytes_per_token):>10} {held:>12}"
        )


def _lengths(plan: Plan, bound: Bound | None) -> Iterator[str]:
    step = f" {'a token takes':>14}" if bound else ""
    yield f"  {'context':>9} {'a request':>12} {'one token more':>15} {'fit':>9}{step}"
    for point in plan.points:
        fits = "-" if point.fits is None else f"{point.fits:.1f}"
        taken = f" {'>= ' + amount(bound.seconds(1, point.context), 's'):>14}" if bound else ""
        grown = f"{_number(point.growing_bytes_per_token)} B"
        yield f"  {point.context:>9} {amount(point.request_bytes, 'B'):>12} {grown:>15} {fits:>9}{taken}"


def _explained(plan: Plan, bound: Bound | None, estimates: tuple[Estimate, ...]) -> Iterator[str]:
    yield f"rules of {plan.engine_name}, read from {plan.engine.SOURCE}:"
    yield from (f"  {rule}" for rule in plan.rules)
    if plan.memory is not None:
        yield from (f"  {step}" for step in plan.memory.steps)
    yield "kinds:"
    for kind in dict.fromkeys(row.layer.kind for row in plan.rows):
        yield f"  {kind}: {KINDS[kind].says}"
    weights = plan.ask.model.weights
    if weights is not None:
        active = f"{weights.active_parameters / 1e9:.3g} G of {weights.parameters / 1e9:.3g} G parameters a token"
        yield f"weights: {amount(weights.total_bytes, 'B')} {weights.how}; {active}"
    if bound is not None:
        yield from bound.explained()
    for one in estimates:
        yield f"rule of thumb: {one.says}: {amount(one.bytes_per_request, 'B')}"


def _deployment(plan: Plan) -> str:
    split = plan.ask.split
    said = [f"TP {split.tp}"] if split.tp > 1 else []
    said += [f"PP {split.pp}"] if split.pp > 1 else []
    said += [f"DP attention {split.dp}"] if split.dp > 1 else []
    said += [f"EP {split.ep}"] if split.ep > 1 else []
    return ", ".join(said) or "one GPU"


def _number(value: float) -> str:
    return f"{value:g}" if value == int(value) and value < 1e6 else f"{value:.1f}".removesuffix(".0")


def _whole_if(value: float) -> float | int:
    return int(value) if value == int(value) else value
