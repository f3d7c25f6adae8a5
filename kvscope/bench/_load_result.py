"""A load run as a result: one row a level, one plot a question, and what must be known before believing it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kvscope.amounts import amount
from kvscope.bench._load_measures import LATENCIES, QUANTILES, Measures, values_of
from kvscope.bench._load_plan import LoadPlan
from kvscope.bench._load_watch import SIGNALS, Watch
from kvscope.bench.result.quantity import Quantity
from kvscope.bench.result.result import Cell, Plot, Result, Series, Table
from kvscope.bench.workload.lengths import band_of
from kvscope.signals.batches import quantile
from kvscope.signals.reading import Reading

LATE_S = 0.02
"""A client that wakes up later than this measures itself."""
FEW = 100


def make(
    found: Sequence[Measures], plan: LoadPlan, tags: Mapping[str, str], settings: Mapping[str, Any], watch: Watch
) -> Result:
    """Put all levels into one result."""
    quantities = [
        Quantity(f"{one.run.level.key}.{name}", q.value, q.unit, q.error, q.better)
        for one in found
        for name, q in one.quantities.items()
    ]
    tables = [_rates(found), *(_latency(found, latency) for latency in LATENCIES), _bands(found[-1], plan)]
    server = _server(found, watch)
    return Result(
        bench="load",
        title=f"Load on {tags.get('url', 'a server')}",
        tags=tags,
        settings=settings,
        quantities=tuple(quantities),
        tables=(*tables, *([server] if server.rows else []), *([_spread(found)] if found[0].spread else [])),
        plots=tuple(_plots(found)),
        says=tuple(_says(found, watch)),
        warns=tuple(_warns(found)),
        extra={"warmup": [_warmup(one) for one in found]},
    )


def _rates(found: Sequence[Measures]) -> Table:
    names = ("output_tokens_per_s", "steady_output_tokens_per_s", "total_tokens_per_s", "requests_per_s")
    good = "goodput_per_s" in found[0].quantities
    columns = ("level", "requests", "failed", "output", "steady output", "in + out", "requests/s")
    rows = []
    for one in found:
        failed = sum(not outcome.ok for outcome in one.run.outcomes)
        row: list[Cell] = [one.run.level.label, len(one.run.outcomes), failed, *(one.value(name) for name in names)]
        rows.append(tuple(row + ([one.value("goodput_per_s"), one.value("good_share")] if good else [])))
    units = ("", "", "", "tokens/s", "tokens/s", "tokens/s", "1/s")
    if not good:
        return Table("Throughput", columns, units, tuple(rows))
    return Table("Throughput", (*columns, "goodput", "good"), (*units, "1/s", "ratio"), tuple(rows))


def _latency(found: Sequence[Measures], latency: str) -> Table:
    says = {"ttft": "sent to first token", "tpot": "per output token", "itl": "between tokens", "e2e": "sent to last"}
    rows = []
    for one in found:
        cells: list[Cell] = [one.run.level.label]
        for name in QUANTILES:
            known = one.quantities.get(f"{latency}_{name}_s")
            cells.append(None if known is None else amount(known.value, "s", known.error))
        rows.append(tuple(cells))
    return Table(f"{latency.upper()}: {says[latency]}", ("level", *QUANTILES), ("",) * 4, tuple(rows))


def _bands(one: Measures, plan: LoadPlan) -> Table:
    """The highest level by prompt length: a mix hides whom it hurts."""
    grouped: dict[str, list[Any]] = {band.name: [] for band in plan.bands}
    for outcome in one.run.outcomes:
        grouped[band_of(plan.bands, outcome.wanted_in).name].append(outcome)
    rows = []
    for band in plan.bands:
        many = grouped[band.name]
        cells: list[Cell] = [f"{band.name}, {band.low} to {band.high}", len(many)]
        for latency, q in (("ttft", 0.5), ("ttft", 0.9), ("tpot", 0.5), ("e2e", 0.5)):
            values = values_of(many, latency)
            cells.append(quantile(values, q) if values else None)
        rows.append(tuple(cells))
    columns = ("prompt tokens", "requests", "TTFT p50", "TTFT p90", "TPOT p50", "E2E p50")
    return Table(f"By prompt length, {one.run.level.label}", columns, ("", "", *("s",) * 4), tuple(rows))


def _server(found: Sequence[Measures], watch: Watch) -> Table:
    rows = []
    for one in found:
        readings = watch.readings(one.run.level.key)
        cells = [readings.get(name) for name in SIGNALS]
        if any(isinstance(cell, Reading) for cell in cells):
            told = [amount(cell.value, cell.unit) if isinstance(cell, Reading) else None for cell in cells]
            joules = watch.joules(one.run.level.key)
            tokens = sum(outcome.tokens_out for outcome in (*one.run.warm, *one.run.outcomes))
            energy = f"{joules / tokens:.2f} J" if joules is not None and tokens else None
            rows.append((one.run.level.label, *told, energy))
    columns = ("level", *SIGNALS.values(), "a token")
    return Table("What the server said of itself", columns, ("",) * len(columns), tuple(rows))


def _spread(found: Sequence[Measures]) -> Table:
    names = ("output_tokens_per_s", "ttft_p50_s", "tpot_p50_s", "e2e_p50_s")
    rows = tuple(
        (
            one.run.level.label,
            *(one.spread[n] / value if n in one.spread and (value := one.value(n)) else None for n in names),
        )
        for one in found
    )
    return Table("A/A floor: half of what the same load differed by", ("level", *names), ("", *("ratio",) * 4), rows)


def _plots(found: Sequence[Measures]) -> Iterator[Plot]:
    for kind, x in (("closed", "clients"), ("open", "requests a second")):
        levels = sorted((one for one in found if one.run.level.kind == kind), key=lambda one: one.run.level.value)
        if len(levels) < 2:
            continue
        xs = tuple(one.run.level.value for one in levels)
        tokens = tuple(one.value("output_tokens_per_s") for one in levels)
        yield Plot(f"Output tokens a second, {x}", x, "tokens/s", "tokens/s", (Series("output", xs, tokens),), True)
        for latency in ("ttft", "tpot"):
            lines = tuple(
                Series(name, xs, tuple(one.value(f"{latency}_{name}_s") for one in levels)) for name in QUANTILES
            )
            yield Plot(f"{latency.upper()}, {x}", x, latency, "s", lines, True)


def _warmup(one: Measures) -> dict[str, Any]:
    cold, warm = (values_of(outcomes, "ttft") for outcomes in (one.run.warm, one.run.outcomes))
    return {
        "level": one.run.level.label,
        "requests": len(one.run.warm),
        "ttft_p50_s": quantile(cold, 0.5) if cold else None,
        "measured_ttft_p50_s": quantile(warm, 0.5) if warm else None,
    }


def _says(found: Sequence[Measures], watch: Watch) -> Iterator[str]:
    for one in found:
        told = _warmup(one)
        cold, warm = told["ttft_p50_s"], told["measured_ttft_p50_s"]
        if cold is not None and warm is not None:
            yield (
                f"{one.run.level.label}: {told['requests']} requests of warm-up discarded, "
                f"their TTFT p50 was {amount(cold, 's')}, measured {amount(warm, 's')}."
            )
    closed = [one for one in found if one.run.level.kind == "closed" and one.value("output_tokens_per_s")]
    if len(closed) > 1:
        best = max(closed, key=lambda one: one.value("output_tokens_per_s") or 0.0)
        yield f"Most output: {best.value('output_tokens_per_s'):.0f} tokens/s with {best.run.level.label}."
    if watch.problem:
        yield f"What the server holds (KV bytes, queue, preemptions) is not known: {watch.problem}."
    if not found[0].spread:
        yield "Each level was run once: --repeat 3 shows what the same load differs by (A/A), and narrows every error."
    if len(found[0].run.outcomes) < FEW:
        yield f"p99 of fewer than {FEW} requests is near the slowest one: --requests {FEW} makes it mean something."


def _warns(found: Sequence[Measures]) -> Iterator[str]:
    for one in found:
        outcomes = one.run.outcomes
        failed = [outcome for outcome in outcomes if not outcome.ok]
        if failed:
            yield f"{one.run.level.label}: {len(failed)} of {len(outcomes)} requests failed: {failed[0].error}"
        if one.run.lag_p99_s > LATE_S:
            yield (
                f"{one.run.level.label}: this client woke up {amount(one.run.lag_p99_s, 's')} late (p99): "
                "it shares a processor with the server, or is too busy; latencies include that"
            )
        short = [o for o in outcomes if o.ok and o.tokens_out < o.wanted_out]
        if short:
            yield f"{one.run.level.label}: {len(short)} answers ended early: less was generated than asked for"
        packed = [o.tokens_out / len(o.token_s) for o in outcomes if o.ok]
        if packed and sum(packed) / len(packed) > 1.1:
            yield (
                f"{one.run.level.label}: a chunk of the stream carries {sum(packed) / len(packed):.1f} tokens: "
                "ITL is the gap between chunks, TPOT counts tokens"
            )
