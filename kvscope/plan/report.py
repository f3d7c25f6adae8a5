"""A plan as JSON, and as text a person reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from kvscope.amounts import amount
from kvscope.plan import kinds
from kvscope.plan.formulas import Estimate
from kvscope.plan.plan import Plan


def as_json(plan: Plan) -> str:
    """Return the plan with every layer, every formula and every length."""
    return json.dumps(
        {
            "model": plan.model,
            "context": plan.context,
            "users": plan.users,
            "bytes_per_token": plan.bytes_per_token,
            "bytes_per_request": plan.bytes_per_request,
            "fixed_bytes_per_request": plan.fixed_bytes,
            "bytes_total": plan.bytes_total,
            "per_layer": [{"layer": one.layer, "kind": one.kind, "bytes": one.bytes} for one in plan.layers],
            "memory_bytes": plan.memory_bytes,
            "requests_that_fit": plan.fits(plan.bytes_per_request),
            "mix_bytes_per_request": plan.mix_bytes,
            "mix_requests_that_fit": mix_fits(plan),
            "formulas": [_formula(plan, one) for one in plan.estimates],
            "by_length": [
                {
                    "context": point.context,
                    "bytes_per_request": point.bytes_per_request,
                    "plain_bytes": point.plain_bytes,
                    "coefficient": point.coefficient,
                }
                for point in plan.points
            ],
            "notes": list(notes(plan)),
        },
        indent=2,
        ensure_ascii=False,
    )


def _formula(plan: Plan, one: Estimate) -> dict[str, Any]:
    return {
        "name": one.name,
        "says": one.says,
        "bytes_per_request": one.bytes_per_request,
        "of_counted": one.bytes_per_request / plan.bytes_per_request if plan.bytes_per_request else None,
        "requests_that_fit": plan.fits(one.bytes_per_request),
    }


def as_text(plan: Plan) -> str:
    """Return the plan in some twenty lines."""
    return "\n".join([*_head(plan), "", *_kinds(plan), "", *_formulas(plan), "", *_lengths(plan), "", *notes(plan)])


def mix_fits(plan: Plan) -> int | None:
    """Return how many requests of the mix fit on average, or None when memory or mix is not known."""
    if plan.memory_bytes is None or not plan.mix_bytes:
        return None
    return int(plan.memory_bytes / plan.mix_bytes)


def notes(plan: Plan) -> Iterator[str]:
    """Say where the plain formula and the count part, and what the count leaves out."""
    share = plan.estimates[0].bytes_per_request // len(plan.layers)
    for kind, (layers, held) in plan.by_kind.items():
        if kind != "full":
            yield (
                f"{layers} layer{'s' if layers > 1 else ''} {kind}: {kinds.says(kind)}; "
                f"{_both(held)} where the plain formula has {_both(share * layers)}"
            )
    if any(kind in plan.by_kind for kind in ("mla", "dsa")):
        yield "an engine that keeps every head expanded (transformers does for MLA) holds far more than this"
    yield "counted from the config: draft layers, block rounding, page tables and scales of plain heads come on top"


def _head(plan: Plan) -> Iterator[str]:
    users = f"{plan.users} request{'s' if plan.users > 1 else ''} at once"
    yield f"{plan.model}: {len(plan.layers)} layers, {plan.context} tokens of context, {users}"
    yield f"  per token    {plan.bytes_per_token} B (the mean at this context)"
    fixed = f", of them {amount(plan.fixed_bytes, 'B')} before the first token" if plan.fixed_bytes else ""
    yield f"  per request  {_both(plan.bytes_per_request)}{fixed}"
    yield f"  in total     {_both(plan.bytes_total)}"
    fits = plan.fits(plan.bytes_per_request)
    if plan.memory_bytes is not None and fits is not None:
        enough = "all fit" if fits >= plan.users else f"{plan.users - fits} too many"
        yield f"  fit          {fits} requests into {_both(plan.memory_bytes)}: {enough}"
    if plan.mix_bytes is not None:
        fits = mix_fits(plan)
        told = f", {fits} fit" if fits is not None else ""
        yield f"  in the mix   {_both(round(plan.mix_bytes))} a request on average{told}"


def _kinds(plan: Plan) -> Iterator[str]:
    yield f"  {'kind':<14} {'layers':>6} {'a request':>12} {'a layer':>12}"
    for kind, (layers, held) in plan.by_kind.items():
        yield f"  {kind:<14} {layers:>6} {amount(held, 'B'):>12} {amount(held / layers, 'B'):>12}"


def _formulas(plan: Plan) -> Iterator[str]:
    yield f"  {'formula':<10} {'a request':>12} {'of counted':>11} {'fit':>6}  says"
    for one in plan.estimates:
        fits = plan.fits(one.bytes_per_request)
        ratio = f"{one.bytes_per_request / plan.bytes_per_request:.2f}×" if plan.bytes_per_request else "-"
        size = amount(one.bytes_per_request, "B")
        yield f"  {one.name:<10} {size:>12} {ratio:>11} {'-' if fits is None else fits:>6}  {one.says}"


def _lengths(plan: Plan) -> Iterator[str]:
    yield f"  {'context':>9} {'a request':>12} {'plain':>12} {'coefficient':>12}"
    for point in plan.points:
        held, plain = amount(point.bytes_per_request, "B"), amount(point.plain_bytes, "B")
        yield f"  {point.context:>9} {held:>12} {plain:>12} {point.coefficient:>12.3f}"


def _both(size: int) -> str:
    return f"{amount(size, 'B')} ({size / 1e9:.3g} GB)" if size >= 1 << 30 else amount(size, "B")
