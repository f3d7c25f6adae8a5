"""Generic against block kernels on the built-in engine: TTFT, TPOT and throughput at short, middle and long context.

One engine, one set of requests, one knob changed between the passes. Where the block kernels gain less than 20 % at the
longest context, either they are not good enough or the sparsity does not fit them.
With --device no engine is started: one layer's attention is timed by kernel (dense, generic, block; choosing apart),
with the bytes it must read and their share of the bandwidth of a plain copy in the same run.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kvscope.amounts import token_count
from kvscope.bench import _child
from kvscope.bench.client.http import Address
from kvscope.bench.client.levels import Level, LoadPlan, run_level
from kvscope.bench.client.measures import Measures, measures
from kvscope.bench.client.server import find_server
from kvscope.bench.workload.lengths import Band
from kvscope.errors import NotEnoughData, UsageError, nearest
from kvscope.progress import Line, waiting
from kvscope.result.result import Cell, Plot, Quantity, Result, Series, Table
from kvscope.sources.builtin import BuiltinEngine, split_knobs

LENGTHS, QUICK_LENGTHS = (2048, 16384, 65536), (1024, 4096)
ALONE, ROUNDS, QUICK_ROUNDS = (2048, 16384), 4, 2
"""Kernels alone: contexts, and turns of each kernel."""
WAYS = ("generic", "block")
ENOUGH = 0.20
"""The gain that kernels must bring at the longest context to be worth it."""
STEP = "itl_p50_s"
COLUMNS = ("ttft_p50_s", "tpot_p50_s", STEP, "output_tokens_per_s")


def configure(parser: argparse.ArgumentParser) -> None:
    """Lengths, load, knobs held equal."""
    add = parser.add_argument
    add("--lengths", metavar="N,…", help="prompt lengths (2K,16K,64K)")
    add("--clients", type=int, default=2, help="requests at once (2)")
    add("--requests", type=int, default=6, help="measured at each length and kernel (6)")
    add("--output-tokens", type=int, default=64, help="tokens of an answer (64)")
    add("--set", action="append", default=[], metavar="NAME=VALUE", help="knobs of the engine (policy=combined)")
    add("--threads", type=int, default=2, help="threads of the engine (2)")
    add("--seed", type=int, default=0, help="of the requests' content (0)")
    add("--quick", action="store_true", help="1K and 4K only, under two minutes on a laptop")
    add("--device", metavar="NAME", help="time the kernels alone, on this device: cpu")
    add("--batches", metavar="N,…", default="8", help="requests at once, with --device (8)")


def measure(options: argparse.Namespace) -> Result:
    """Measure every length with every kernel."""
    if options.requests < 2 or options.clients < 1 or options.output_tokens < 2:
        raise UsageError("--requests and --output-tokens: expected at least 2; --clients: at least 1")
    lengths: tuple[int, ...] = QUICK_LENGTHS if options.quick else ALONE if options.device else LENGTHS
    if options.lengths:
        lengths = tuple(sorted({token_count(part, "--lengths") for part in options.lengths.split(",")}))
    return _alone(options, lengths) if options.device else result_of(_measure(options, lengths), options)


def _alone(options: argparse.Namespace, lengths: tuple[int, ...]) -> Result:
    check_device(options.device)
    batches = sorted({token_count(part, "--batches") for part in options.batches.split(",")})
    with waiting("timing the kernels") as tick:
        return measure_alone(options.device, lengths, batches, QUICK_ROUNDS if options.quick else ROUNDS, tick)


def _measure(options: argparse.Namespace, lengths: tuple[int, ...]) -> dict[tuple[int, str], Measures]:
    knobs = {"load.clients": "0", "policy": "combined", "prefix_cache": "off", **split_knobs(options.set)}
    longest = max(lengths) + options.output_tokens
    pool = (options.clients + 1) * longest * 4 // 1024 + 16
    flags = ("--threads", str(options.threads), "--max-context", str(longest), "--pool-mib", str(pool))
    with waiting("starting the engine") as tick:
        engine = BuiltinEngine.start(knobs, flags, tick)
    line, found = Line(), {}
    try:
        assert engine.control is not None
        server = asyncio.run(find_server(Address("127.0.0.1", engine.port, False, "")))
        for length in lengths:
            plan = plan_of(length, options)
            for way in WAYS:
                engine.control.set({"kernels": way})
                total = len(plan.pairs(plan.levels[0]))
                tell = lambda n, at=f"{length} tokens, {way}", of=total: line.show(f"{at}: {n} of {of}")  # noqa: E731
                run = asyncio.run(run_level(server, plan, plan.levels[0], 0, None, tell))
                found[length, way] = measures([run], {})
    finally:
        line.wipe()
        engine.stop(keep_recorder=False)
    return found


def plan_of(length: int, options: argparse.Namespace) -> LoadPlan:
    """Return the requests of one length, the same for both kernels."""
    level = Level("closed", float(options.clients))
    band = Band("all", 1.0, length, length + 1)
    out = (options.output_tokens, options.output_tokens)
    return LoadPlan((level,), (band,), out, options.requests, options.clients, options.seed)


def result_of(found: Mapping[tuple[int, str], Measures], options: argparse.Namespace) -> Result:
    """Put both kernels side by side; a gain below the bar at the longest context is a warning."""
    lengths = sorted({length for length, _ in found})
    gains = {length: gain_at(found, length) for length in lengths}
    xs = tuple(map(float, lengths))
    series = tuple(Series(way, xs, tuple(found[length, way].value(STEP) for length in lengths)) for way in WAYS)
    last = gains[lengths[-1]]
    warn = (
        f"At {lengths[-1]} tokens the block kernels make decode {last:.0%} faster, below {ENOUGH:.0%}: the kernels "
        "are not good enough, or the sparsity does not fit them"
    )
    quantities = [
        Quantity(f"{way}_{length}.{q.name}", q.value, q.unit, q.error, q.better)
        for (length, way), one in found.items()
        for q in one.quantities.values()
    ]
    return Result(
        bench="kernels",
        title="Block-sparse reads: generic operators against block kernels",
        tags={"engine": "kvscope-engine", "workload": f"{options.clients} clients, {options.requests} requests"},
        settings={"lengths": lengths, "output tokens": options.output_tokens, "seed": options.seed, "set": options.set},
        quantities=tuple(quantities),
        tables=(_table(found, gains),),
        plots=(Plot("Typical decode step (ITL p50)", "tokens of context", "ITL", "s", series, even=True),),
        says=tuple(
            f"At {n} tokens a decode step is {abs(gain):.0%} {'faster' if gain >= 0 else 'slower'} with block kernels."
            for n, gain in gains.items()
        ),
        warns=(warn,) if last < ENOUGH else (),
    )


def _table(found: Mapping[tuple[int, str], Measures], gains: Mapping[int, float]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (length, way, *(found[length, way].value(name) for name in COLUMNS), gain if way == "block" else None)
        for length, gain in gains.items()
        for way in WAYS
    ]
    columns = ("context", "kernels", "TTFT p50", "TPOT p50", "ITL p50", "output", "step faster by")
    return Table("Generic and block", columns, ("", "", "s", "s", "s", "tokens/s", "ratio"), tuple(rows))


def gain_at(found: Mapping[tuple[int, str], Measures], length: int) -> float:
    """Return by how much the typical decode step is faster with block kernels: generic / block − 1.

    The median gap, not TPOT: that one counts the prefills of others between two tokens, which both kernels share.
    """
    generic, block = (found[length, way].value(STEP) for way in WAYS)
    if generic is None or not block:
        raise NotEnoughData(f"{length} tokens: no two tokens of an answer came apart; expected more output tokens")
    return generic / block - 1


DEVICES = {"cpu": "engine.lab.tables.kernels_cpu", "cuda": "engine.lab.tables.kernels_cuda"}
"""By device, the module that measures there."""
DTYPE = {"cpu": "float32", "cuda": "bfloat16"}
ALONE_COLUMNS = ("path", "batch", "context", "kept", "form", "ms", "gb_per_s", "share")
ALONE_UNITS = ("", "", "", "ratio", "", "", "", "ratio")


def check_device(name: str) -> None:
    """UsageError where there is no such table."""
    if name not in DEVICES:
        raise UsageError(f"--device {name!r}{nearest(name, DEVICES)}; expected {' or '.join(DEVICES)}")


def measure_alone(
    device: str, contexts: Sequence[int], batches: Sequence[int], rounds: int, tick: Callable[[float], None]
) -> Result:
    """Run the engine's measurement and wait for it; UsageError where the engine is not installed, SourceError."""
    words = ["--rounds", str(rounds), "--contexts", *map(str, contexts), "--batches", *map(str, batches)]
    return alone_result(_child.found(DEVICES[device], words, tick), device)


def alone_result(found: Mapping[str, Any], device: str = "cpu") -> Result:
    """Put the rows into a table, and say how the kernels compare at each batch and context."""
    rows = found["rows"]
    return Result(
        bench="kernels",
        title="Decode attention of one layer, by kernel",
        tags={"engine": "kvscope-engine", "device": device, "workload": f"one layer, {DTYPE[device]}, random pages"},
        settings={"threads": found["threads"], "copy GB/s": found["copy_gb_per_s"]},
        quantities=tuple(
            Quantity(
                f"{row['path']}_{row['batch']}x{row['context']}_{row['form']}_s", row["ms"] / 1e3, "s", None, "lower"
            )
            for row in rows
        ),
        tables=(
            Table(
                "By kernel",
                ALONE_COLUMNS,
                ALONE_UNITS,
                tuple(tuple(row[name] for name in ALONE_COLUMNS) for row in rows),
            ),
        ),
        says=(
            *(_alone_said(rows, size) for size in sorted({(row["batch"], row["context"]) for row in rows})),
            *(_latent_said(row) for row in rows if row["path"] == "read"),
        ),
        extra={"rows": rows, "copy_gb_per_s": found["copy_gb_per_s"]},
    )


def _cells(row: Mapping[str, Any]) -> tuple[Cell, ...]:
    return tuple(row[name] for name in ALONE_COLUMNS)


def _latent_said(row: Mapping[str, Any]) -> str:
    return (
        f"{row['batch']} x {row['context']}: latent rows ({row['form']}) are read in {1e3 * row['ms']:.1f} µs, at "
        f"{row['share']:.0%} of a copy's bandwidth."
    )


def _alone_said(rows: Sequence[Mapping[str, Any]], size: tuple[int, int]) -> str:
    ms = {row["path"]: row["ms"] for row in rows if (row["batch"], row["context"]) == size and row["form"] == "hot"}
    return (
        f"{size[0]} x {size[1]}: block reads {ms['dense'] / ms['block']:.2f} times as fast as dense and "
        f"{ms['generic'] / ms['block']:.2f} times as fast as generic; choosing included, "
        f"{ms['dense'] / ms['select+block']:.2f} times as fast as dense."
    )
