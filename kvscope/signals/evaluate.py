"""The first reader of an expression: a value with its error over a segment, an exact count, or why there is none."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import accumulate, compress, repeat
from operator import ge, gt, mul
from typing import Literal, TypeVar

from kvscope.signals import batches as bm
from kvscope.signals.algebra import (
    SHARE,
    Amount,
    Calc,
    Chosen,
    Clip,
    Condition,
    Constant,
    Expr,
    FirstOf,
    Fraction,
    Gauge,
    Highest,
    Increase,
    OverCells,
    Procedure,
    QuantileOf,
    Rate,
    Ratio,
    Setting,
    Within,
    needs,
    unit,
)
from kvscope.signals.flows import Flow, Pair, Part, during
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.samples import SEND_WORK, WATCH_LONGER, Cell, Moments, Samples, replicas
from probes.catalog import REPLICA, metric_of

Paired = Rate | Ratio | Gauge | Fraction
E = TypeVar("E", bound=Expr)
_MIN_REQUESTS = 5
_IDLE = "nothing was running in this segment"


def evaluate(expr: Expr, samples: Samples) -> Reading | Missing:
    """Return the value of ``expr`` over a segment."""
    match expr:
        case Rate() | Ratio() | Gauge() | Fraction():
            found = pair(expr, samples)
            return found if isinstance(found, Missing) else _reading(found)
        case Calc() | Clip():
            return _calculated(expr, samples)
        case FirstOf():
            return _first(expr, samples)
        case Increase():
            return _increase(expr, samples)
        case Setting(metric=metric):
            return _setting(metric, samples)
        case QuantileOf(metric=metric, q=q):
            return _quantile(metric, q, samples)
        case Highest(metric=metric):
            return _highest(metric, samples)
        case Constant(value=value):
            return Reading(value, 0.0, "", "", 1, 1, "fact")
        case Within(inner=inner, start=start, end=end):
            return evaluate(inner, samples.part(start, end))
        case OverCells():
            from kvscope.signals.by_cell import over_cells

            return over_cells(expr, samples)
        case Chosen(function=choose):
            chosen = choose(samples)
            return chosen if isinstance(chosen, Missing) else evaluate(chosen, samples)
        case Procedure(function=function):
            return function(samples)
    raise TypeError(f"no expression: {expr!r}")


def pair(expr: Paired, samples: Samples) -> Pair | Missing:
    """Return which two flows ``expr`` is one over the other of: the one place where a rate or a share is formed."""
    match expr:
        case Rate():
            return _rate(expr, samples)
        case Ratio():
            return _ratio(expr, samples)
        case Gauge(when=None):
            found = samples.moments(expr.amount)
            if isinstance(found, Missing):
                return found
            return _stood(found, found.total(expr.amount), repeat(1.0), unit(expr), samples)
        case Gauge():
            return _cellwise(expr, samples, _gauge_while) if unit(expr) == SHARE else _gauge_while(expr, samples)
        case Fraction():
            return _cellwise(expr, samples, _fraction)


def _reading(found: Pair) -> Reading | Missing:
    start, end = found.span
    cuts = cuts_of(start, end, found.samples // 2 if found.each else found.samples - 1)
    if cuts is None:
        return Missing("the two counters were never sampled together", WATCH_LONGER)
    tops, bottoms = found.top.grown(cuts), found.bottom.grown(cuts)
    if sum(bottoms) <= 0:
        return Missing(found.nothing or "nothing was counted in this segment", SEND_WORK)
    value, error = bm.ratio_and_error(tops, bottoms)
    return Reading(value, error, found.unit, found.source, len(tops), found.samples)


def cuts_of(start_s: float, end_s: float, most: int) -> list[float] | None:
    """Return the edges of ten batches, or of as many as there can be; None below two."""
    count = min(bm.BATCHES, most)
    return bm.edges(start_s, end_s, count) if count >= 2 and end_s > start_s else None


def _rate(expr: Rate, samples: Samples) -> Pair | Missing:
    flow = samples.flow(expr.amount)
    if isinstance(flow, Missing):
        return flow
    spans = [(part.times[0], part.times[-1]) for part in flow.parts]
    # Time spent is a share of each part's own time; anything else is an amount a second, whoever counted it.
    if unit(expr) != SHARE:
        spans = [(min(start for start, _ in spans), max(end for _, end in spans))]
    source = samples.source(flow)
    passed = Flow(tuple(Part(span, span) for span in spans))
    if expr.when is not None:
        moments = samples.moments(*expr.when.reads)
        if isinstance(moments, Missing):
            return moments
        holds = _holds(expr.when, moments, samples)
        if isinstance(holds, Missing):
            return holds
        held = frozenset(compress(moments.times, holds))
        kept = [during(part, held) for part in flow.parts]
        flow = Flow(tuple(top for top, _ in kept), flow.resets)
        passed = Flow(tuple(bottom for _, bottom in (kept if unit(expr) == SHARE else kept[:1])))
    return Pair(flow, passed, unit(expr), _IDLE if expr.when else "no time passed", source, flow.samples)


def _ratio(expr: Ratio, samples: Samples) -> Pair | Missing:
    if isinstance(expr.top, Amount) and isinstance(expr.bottom, Amount) and _gauges(expr.top):
        return _of_gauges(expr, expr.top, expr.bottom, samples)
    top, bottom = samples.flow(expr.top), samples.flow(expr.bottom)
    if isinstance(top, Missing):
        return top
    if isinstance(bottom, Missing):
        return bottom
    source = "measured: each request" if top.jumps else samples.source(top.plus(bottom))
    return Pair(top, bottom, expr.unit, expr.nothing, source, min(top.samples, bottom.samples), each=top.jumps)


def _of_gauges(expr: Ratio, top: Amount, bottom: Amount, samples: Samples) -> Pair | Missing:
    found = samples.moments(top, bottom)
    if isinstance(found, Missing):
        return found
    nothing = expr.nothing or f"{bottom.metrics[0]} stayed 0 in this segment"
    return _stood(found, found.total(top), found.total(bottom), expr.unit, samples, nothing)


def _cellwise(expr: E, samples: Samples, form: Callable[[E, Samples], Pair | Missing]) -> Pair | Missing:
    """Form a pair for each replica and add them up: a share of the fleet is a mean weighted by time."""
    names = replicas(samples, needs(expr))
    if len(names) < 2 or samples.cell is not None:
        return form(expr, samples)
    found = [form(expr, samples.only(Cell(REPLICA, name))) for name in names]
    pairs = [one for one in found if isinstance(one, Pair)]
    if not pairs:
        return next(one for one in found if isinstance(one, Missing))
    first, *rest = pairs
    top, bottom = first.top.plus(*(one.top for one in rest)), first.bottom.plus(*(one.bottom for one in rest))
    return Pair(top, bottom, first.unit, first.nothing, first.source, min(one.samples for one in pairs))


def _gauge_while(expr: Gauge, samples: Samples) -> Pair | Missing:
    assert expr.when is not None
    found = samples.moments(expr.amount, *expr.when.reads)
    if isinstance(found, Missing):
        return found
    holds = _holds(expr.when, found, samples)
    if isinstance(holds, Missing):
        return holds
    values = map(mul, found.total(expr.amount), holds)
    return _stood(found, values, holds, unit(expr), samples, _IDLE)


def _fraction(expr: Fraction, samples: Samples) -> Pair | Missing:
    asked = expr.when & expr.condition if expr.when else expr.condition
    found = samples.moments(*asked.reads)
    if isinstance(found, Missing):
        return found
    holds = _holds(asked, found, samples)
    within = _holds(expr.when, found, samples) if expr.when else [1.0] * len(found.times)
    if isinstance(holds, Missing):
        return holds
    if isinstance(within, Missing):
        return within
    limits = (evaluate(bound, samples) for _, _, bound in asked.tests if isinstance(bound, Expr))
    inferred = [one.source for one in limits if isinstance(one, Reading) and one.source.startswith("inferred")]
    made = _stood(found, holds, within, SHARE, samples, _IDLE if expr.when else "")
    return replace(made, source=inferred[0] if inferred else f"{made.source}: samples of the gauges")


def _holds(when: Condition, moments: Moments, samples: Samples) -> list[float] | Missing:
    """Return 1 at each moment at which a condition holds, else 0."""
    holds = [1.0] * len(moments.times)
    for asked, sense, bound in when.tests:
        limit = evaluate(bound if isinstance(bound, Expr) else Constant(bound), samples)
        if isinstance(limit, Missing):
            return limit
        told = map(ge if sense == ">=" else gt, moments.total(asked), repeat(limit.value))
        holds = list(map(mul, holds, told))
    return holds


def _stood(
    moments: Moments, top: Iterable[float], bottom: Iterable[float], unit: str, samples: Samples, nothing: str = ""
) -> Pair:
    tops, bottoms = moments.stood(top), moments.stood(bottom)
    return Pair(tops, bottoms, unit, nothing, samples.source(tops), len(moments.times))


def _gauges(amount: Amount) -> bool:
    line = metric_of(amount.metrics[0])
    return line is not None and line.kind == "gauge"


def _calculated(expr: Expr, samples: Samples) -> Reading | Missing:
    known: dict[Expr, Reading] = {}
    for leaf in leaves(expr):
        one = evaluate(leaf, samples)
        if isinstance(one, Missing):
            return one
        known[leaf] = one
    values = {leaf: one.value for leaf, one in known.items()}
    value = apply(expr, values)
    if value is None:
        return Missing(f"{_divisor(expr, values)} is 0 in this segment", SEND_WORK)
    moved = [_moved(expr, values, leaf, one.error) for leaf, one in known.items() if one.error]
    spread = [one for one in known.values() if one.kind != "fact"] or list(known.values())
    told = next((one for one in known.values() if one.source.startswith("inferred")), spread[0])
    # Parts of one segment are windows of their own: together they are as many as theirs.
    batches, count = min(one.batches for one in spread), (sum if _parted(known) else min)(one.samples for one in spread)
    kind: Literal["estimate", "fact"] = "fact" if all(one.kind == "fact" for one in spread) else "estimate"
    return Reading(value, math.hypot(*moved), unit(expr), told.source, batches, count, kind)


def _parted(known: Mapping[Expr, Reading]) -> bool:
    return len(known) > 1 and all(isinstance(leaf, Within) for leaf in known)


def leaves(expr: Expr) -> tuple[Expr, ...]:
    """Return what arithmetic is done on, once each."""
    return tuple(dict.fromkeys(_leaves(expr)))


def _leaves(expr: Expr) -> Iterator[Expr]:
    match expr:
        case Calc(left=left, right=right):
            yield from _leaves(left)
            yield from _leaves(right)
        case Clip(inner=inner):
            yield from _leaves(inner)
        case Constant():
            return
        case _:
            yield expr


def apply(expr: Expr, values: Mapping[Expr, float]) -> float | None:
    """Do the arithmetic; None where something is divided by 0."""
    match expr:
        case Constant(value=value):
            return value
        case Clip(inner=inner, low=low, high=high):
            held = apply(inner, values)
            return None if held is None else min(max(held, low), high)
        case Calc(operator=operator, left=left, right=right):
            one, other = apply(left, values), apply(right, values)
            if one is None or other is None or (operator == "/" and other == 0):
                return None
            return {"+": one + other, "-": one - other, "*": one * other}[operator] if operator != "/" else one / other
        case _:
            return values[expr]


def _moved(expr: Expr, values: Mapping[Expr, float], leaf: Expr, error: float) -> float:
    """Return by how much the value moves as one of its parts moves by its error: that part may stand in it twice."""
    ends = [apply(expr, {**values, leaf: values[leaf] + side * error}) for side in (1, -1)]
    middle = apply(expr, values)
    assert middle is not None
    high, low = (middle if end is None else end for end in ends)
    return abs(high - low) / 2


def _divisor(expr: Expr, values: Mapping[Expr, float]) -> str:
    match expr:
        case Calc(operator="/", left=left, right=right) if apply(left, values) is not None:
            return needs(right)[0] if apply(right, values) is not None else _divisor(right, values)
        case Calc(left=left, right=right):
            return _divisor(left if apply(left, values) is None else right, values)
        case Clip(inner=inner):
            return _divisor(inner, values)
    return "a divisor"


def _first(expr: FirstOf, samples: Samples) -> Reading | Missing:
    first: Missing | None = None
    for index, option in enumerate(expr.options):
        found = evaluate(option, samples)
        if isinstance(found, Reading):
            said = expr.says[index] if expr.says else ""
            return replace(found, source=said) if said else found
        first = first or found
    assert first is not None
    return first


def _increase(expr: Increase, samples: Samples) -> Reading | Missing:
    flow = samples.flow(expr.amount)
    if isinstance(flow, Missing):
        return flow
    seconds = flow.end_s - flow.start_s
    source = f"counted in {seconds:.0f} s" + samples.source(flow).removeprefix("measured")
    return Reading(samples.whole(flow), 0.0, expr.unit, source, 1, flow.samples, "count", seconds)


def _setting(metric: str, samples: Samples) -> Reading | Missing:
    moving = evaluate(Gauge(Amount((metric,))), samples)
    if isinstance(moving, Reading):
        return moving if moving.error else replace(moving, kind="fact")
    value = samples.setting(metric)
    if isinstance(value, Missing):
        return value
    line = metric_of(metric)
    return Reading(value, 0.0, line.unit if line else "", "measured: as configured", 1, 1, "fact")


def _highest(metric: str, samples: Samples) -> Reading | Missing:
    found = samples.level(metric)
    if isinstance(found, Missing):
        return found
    times, values = found
    if not values:
        return Missing(f"{metric}: its parts were never sampled together", WATCH_LONGER)
    top, line = max(values), metric_of(metric)
    return Reading(
        top, 0.0, line.unit if line else "", f"inferred: none is reported, the most seen was {top:g}", 1, len(times)
    )


def _quantile(metric: str, q: float, samples: Samples) -> Reading | Missing:
    pairs = samples.observed(metric)
    if isinstance(pairs, Missing):
        return _in_buckets(metric, q, samples, pairs)
    ordered = sorted(pairs[1])
    if len(ordered) < _MIN_REQUESTS:
        return Missing(f"{metric}: only {len(ordered)} requests finished in this segment", WATCH_LONGER)
    error, line = bm.quantile_error(ordered, q), metric_of(metric)
    source = "measured: each request"
    return Reading(bm.quantile(ordered, q), error, line.unit if line else "", source, bm.BATCHES, len(ordered))


def _in_buckets(metric: str, q: float, samples: Samples, absent: Missing) -> Reading | Missing:
    told = buckets(metric, samples)
    if isinstance(told, Missing):
        return told
    if not told:
        return absent
    bounds, grown = list(told), list(accumulate(told.values(), max))
    if grown[-1] < _MIN_REQUESTS:
        return Missing(f"{metric}: only {grown[-1]:.0f} values in this segment", WATCH_LONGER)
    index = next(i for i, total in enumerate(grown) if total >= q * grown[-1])
    low, below = (bounds[index - 1], grown[index - 1]) if index else (0.0, 0.0)
    if math.isinf(bounds[index]):
        return Missing(f"{metric}: the quantile lies above the last bucket ({low:g})", "finer buckets")
    value = low + (q * grown[-1] - below) / (grown[index] - below) * (bounds[index] - low)
    error, line = max(value - low, bounds[index] - value), metric_of(metric)
    source = f"inferred: histogram bucket {low:g} to {bounds[index]:g}"
    return Reading(value, error, line.unit if line else "", source, 1, round(grown[-1]))


def buckets(metric: str, samples: Samples) -> dict[float, float] | Missing:
    """Return upper bound → how many values came at or below it, rising; empty where there is no histogram.

    A bound may be spelt in two ways (``1`` and ``1.0``).
    """
    if metric not in samples.histograms:
        samples.histograms[metric] = _buckets(metric, samples)
    return samples.histograms[metric]


def _buckets(metric: str, samples: Samples) -> dict[float, float] | Missing:
    name = f"{metric}.bucket"
    flows = samples.parts(name)
    if isinstance(flows, Missing):
        return flows if samples.keys(name) else {}
    found: dict[float, float] = {}
    for labels, flow in flows.items():
        text = dict(labels).get("le", "")
        bound = math.inf if text in ("+Inf", "inf", "") else float(text)
        found[bound] = found.get(bound, 0.0) + samples.whole(flow)
    return dict(sorted(found.items()))
