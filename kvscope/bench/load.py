"""Load an OpenAI-compatible server and measure what its users would see: TTFT, TPOT, ITL, E2E, throughput, goodput.

--clients keeps so many requests outstanding (closed loop), --rate sends so many a second whatever happens (open loop,
Poisson), --trace replays a log. Lengths are a long tail by default: 70 % below 2K tokens, 20 % to 16K, 10 % above,
shrunk to what the server takes. Answers are generated to their full length. Warm-up is sent, shown and discarded.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kvscope.account import Facts
from kvscope.amounts import amount
from kvscope.bench._child import Log
from kvscope.bench.client.http import address_of
from kvscope.bench.client.levels import LevelRun, LoadPlan, fitting, levels_of, range_of, run_level, words_per_token
from kvscope.bench.client.measures import LATENCIES, QUANTILES, Measures, measures, parse_slo, values_of
from kvscope.bench.client.server import Server, find_server
from kvscope.bench.client.watch import SIGNALS, Watch, open_watch
from kvscope.bench.workload import lengths
from kvscope.bench.workload.lengths import band_of
from kvscope.bench.workload.trace import read_trace
from kvscope.bound import Load
from kvscope.errors import NotEnoughData, SourceError, UsageError
from kvscope.progress import Line
from kvscope.result.result import Cell, Plot, Quantity, Result, Series, Table
from kvscope.signals.batches import quantile
from kvscope.signals.reading import Reading

CLIENTS = "1,2,4,8"
QUICK_CLIENTS, QUICK_REQUESTS, QUICK_OUT, QUICK_LONGEST = "1,4", 12, "32", 2048


def configure(parser: argparse.ArgumentParser) -> None:
    """The server, the levels, the requests."""
    add = parser.add_argument
    add("url", metavar="URL", help="an OpenAI-compatible server, http://host:port")
    add("--clients", metavar="N,…", help=f"closed loop: requests outstanding, one level each ({CLIENTS})")
    add("--rate", metavar="R,…", help="open loop: arrivals a second (Poisson), one level each")
    add("--trace", metavar="FILE", help="open loop: requests and arrivals of a log, JSON or CSV")
    add("--speed", type=float, metavar="X", help="replay --trace at so many times its speed (1)")
    add("--mix", metavar="SPEC", help="prompt lengths, PERCENT:LOW-HIGH,… (70:128-2K,20:2K-16K,10:16K-64K)")
    add("--longest", type=int, metavar="N", help="shrink the mix so that no prompt is longer")
    add("--output-tokens", metavar="N", help="tokens of an answer, N or LOW-HIGH (64)")
    add("--requests", type=int, metavar="N", help="measured at each level (4 a client, at least 20)")
    add("--warmup", type=int, metavar="N", help="sent first and discarded (one a client, at least 2)")
    add("--turns", type=int, default=1, metavar="N", help="conversations of so many turns, with --clients (1)")
    add("--shared-prefix", type=int, default=0, metavar="N", help="tokens that all prompts start with (0)")
    add("--slo", default="ttft=1s,tpot=100ms", metavar="SPEC", help="limits of goodput (ttft=1s,tpot=100ms)")
    add("--repeat", type=int, default=1, metavar="N", help="run every level so often, for an A/A floor (1)")
    add("--seed", type=int, default=0, metavar="N", help="of lengths, content and arrivals (0)")
    add("--model", default="", metavar="NAME", help="model to ask for (the first that is served)")
    add("--text", action="store_true", help="prompts as text instead of token numbers; lengths become approximate")
    add("--no-ignore-eos", action="store_true", help="let answers end where the model ends them")
    add("--key-env", metavar="NAME", help="environment variable with the server's key")
    add("--timeout", type=float, default=600.0, metavar="S", help="give a request up after this long (600)")
    add("--watch", metavar="TARGET", help="read KV, queue and power here (the server's own page); 'none' for nothing")
    add("--config", metavar="FILE", help="the model's config.json, for the bound of a token")
    add("--gpu", metavar="NAME", help="the device, such as H200, for the bound of a token")
    add("--log", metavar="FILE", help="keep finished levels; with the same settings an interrupted run goes on")
    add("--quick", action="store_true", help="two small levels, under two minutes on a laptop's engine")


def measure(options: argparse.Namespace) -> Result:
    """Run every level and return the result."""
    slo, address = parse_slo(options.slo), address_of(options.url)
    key = os.environ.get(options.key_env, "") if options.key_env else ""
    server = asyncio.run(find_server(address, options.model, key))
    plan = _plan(options, server)
    watch = open_watch(None if options.watch == "none" else options.watch or address.text)
    try:
        runs = _run(options, plan, server, watch)
    finally:
        watch.close()
    facts = watch.facts(address.text, options.config, options.gpu)
    by_level: dict[str, list[LevelRun]] = {}
    for run in runs:
        by_level.setdefault(run.level.key, []).append(run)
    tags = {"url": address.text, "model": server.model, "workload": _workload(plan)}
    settings = {**plan.as_json(), "slo": options.slo, "prompts": "text" if options.text else "token numbers"}
    found = [measures(same, slo) for same in by_level.values()]
    result = result_of(found, plan, tags, settings, watch)
    bound = bound_of(found, facts)
    return result if bound is None else replace(result, tables=(*result.tables, bound), says=(*result.says, _AT_LEAST))


def _plan(options: argparse.Namespace, server: Server) -> LoadPlan:
    _check(options)
    quick = options.quick
    trace = tuple(read_trace(Path(options.trace))) if options.trace else ()
    if trace and any(one.arrival_s is None for one in trace):
        raise UsageError(f"{options.trace}: not every request says when it came; use --mix for its lengths instead")
    clients = options.clients or (None if options.rate or trace else QUICK_CLIENTS if quick else CLIENTS)
    tokens_out = range_of(options.output_tokens or (QUICK_OUT if quick else "64"), "--output-tokens")
    bands = lengths.parse(options.mix) if options.mix else lengths.DEFAULT
    longest = options.longest or (QUICK_LONGEST if quick else None)
    return LoadPlan(
        levels_of(clients, options.rate, (options.speed or 1.0) if trace else None),
        fitting(bands, longest, server.longest, tokens_out[1]),
        tokens_out,
        options.requests or (QUICK_REQUESTS if quick else None),
        options.warmup,
        options.seed,
        options.repeat,
        options.turns,
        shared=options.shared_prefix,
        trace=trace,
    )


def _check(options: argparse.Namespace) -> None:
    for name, least in (("requests", 2), ("warmup", 0), ("turns", 1), ("repeat", 1), ("longest", 16)):
        value = getattr(options, name)
        if value is not None and value < least:
            raise UsageError(f"--{name} {value}: expected at least {least}")
    if options.speed is not None and not options.trace:
        raise UsageError("--speed without --trace: expected the trace to replay")
    if options.trace and (options.clients or options.rate):
        raise UsageError("--trace brings its own arrivals; expected no --clients and no --rate beside it")
    if options.turns > 1 and (options.text or options.rate or options.trace):
        raise UsageError("--turns: expected --clients and prompts as token numbers")


def _run(options: argparse.Namespace, plan: LoadPlan, server: Server, watch: object) -> list[LevelRun]:
    assert isinstance(watch, Watch)
    server = replace(server, timeout_s=options.timeout, ignore_eos=not options.no_ignore_eos)
    about = {"url": server.address.text, "model": server.model, **plan.as_json()}
    log = Log(options.log, about, LevelRun.as_json, LevelRun.from_json)
    line, found, words = Line(), [], None
    try:
        if options.text:
            words = asyncio.run(words_per_token(server, plan.seed))
        for level in plan.levels:
            for repeat in range(plan.repeat):
                known = log.get(level.key, repeat)
                if known is None:
                    total = len(plan.pairs(level)) * plan.turns
                    head = f"{level.label}{f', pass {repeat + 1}' if plan.repeat > 1 else ''}"
                    tell = lambda done, head=head, total=total: line.show(f"{head}: {done} of {total} requests")  # noqa: E731
                    with watch.level(level.key):
                        known = asyncio.run(run_level(server, plan, level, repeat, words, tell))
                    if not any(one.ok for one in known.outcomes):
                        raise NotEnoughData(f"{level.label}: every request failed: {known.outcomes[0].error}")
                    log.add(known, level.key, repeat)
                found.append(known)
    except ValueError as error:
        raise SourceError(f"{server.address.text}: {error}; expected usage, to count a text's tokens") from None
    finally:
        line.wipe()
    return found


def _workload(plan: LoadPlan) -> str:
    if plan.trace:
        return f"trace of {len(plan.trace)} requests"
    mix = ",".join(f"{100 * band.share:g}%:{band.low}-{band.high}" for band in plan.bands)
    return f"{mix} -> {plan.tokens_out[0]}-{plan.tokens_out[1]}"


_AT_LEAST = "The bound of a token is the least time its step can take, by bytes and arithmetic: no prediction."


def bound_of(found: Sequence[Measures], facts: Facts) -> Table | None:
    """Return each level's TPOT beside the least time of its steps; None where model or device is not known.

    What ran together follows from Little's law: seconds of decoding over those that passed.
    """
    rows: list[tuple[Cell, ...]] = []
    for one in found:
        answered = [outcome for outcome in one.run.outcomes if outcome.ok and outcome.tokens_out > 1]
        tpot = one.value("tpot_p50_s")
        if not answered or tpot is None:
            continue
        spent = [outcome.e2e_s - outcome.ttft_s for outcome in answered]
        passed = max(outcome.ended_s for outcome in answered) - min(outcome.sent_s for outcome in answered)
        contexts = [(outcome.tokens_in or outcome.wanted_in) + outcome.tokens_out / 2 for outcome in answered]
        if not sum(spent) or not passed:
            continue
        batch = max(1.0, sum(spent) / passed)
        context = sum(s * tokens for s, tokens in zip(spent, contexts, strict=True)) / sum(spent)
        floor = facts.floor(Load(batch, context))
        if floor is None:
            return None
        times = [amount(s, "s") for s in (tpot, floor.most_s, floor.weights_s, floor.kv_s[1] + floor.index_s)]
        rows.append((one.run.level.label, round(batch, 1), round(context), *times, floor.most_s / tpot))
    if not rows:
        return None
    columns = ("level", "batch", "context", "TPOT p50", "at least", "weights", "KV", "explained")
    units = ("", "requests", "tokens", "", "", "", "", "ratio")
    return Table(f"The bound of a token: {'; '.join(facts.sources)}", columns, units, tuple(rows))


LATE_S = 0.02
"""A client that wakes up later than this measures itself."""
FEW = 100


def result_of(
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
