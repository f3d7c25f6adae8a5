"""KV of a request spread over ranks: how even each partition is, what a step takes, and from which size on it pays.

Attention of a decode step alone (choose, attend, exchange, merge; no weights), with synthetic keys: `drift`, whose
neighbouring blocks resemble each other, and `random`. On CPUs ranks talk by gloo, on GPUs by NCCL, one GPU a rank, and
a step is replayed as one CUDA graph. While it runs, `kvscope attach` on the recorders it names shows the ranks.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kvscope.amounts import each, share, token_count, whole
from kvscope.bench import _child
from kvscope.bench._child import Log
from kvscope.errors import UsageError, nearest
from kvscope.progress import Line
from kvscope.result.result import Cell, Plot, Quantity, Result, Series, Table


def configure(parser: argparse.ArgumentParser) -> None:
    """What is spread, how, and over how many."""
    add = parser.add_argument
    add("--device", default="cpu", metavar="D", help="cpu (gloo) or cuda (NCCL, one GPU a rank) (cpu)")
    add("--ranks", default="1,2,4", metavar="N,…", help="numbers of ranks; 1 is always measured (1,2,4)")
    add("--partitions", metavar="NAME,…", help="by_head, contiguous, round_robin, by_layer (all)")
    add("--sizes", metavar="BxN,…", help="requests x context (1x2K,1x8K,1x32K,8x8K; cuda: 1x4K to 1x256K, 8x64K)")
    add("--kept", default="0.25", metavar="S,…", help="shares of the blocks that a step reads (0.25)")
    add("--layers", type=int, default=4, metavar="N", help="layers, one after the other (4)")
    add("--kv-heads", type=int, metavar="N", help="KV heads (4; cuda: 8)")
    add("--head-dim", type=int, metavar="N", help="width of a head (64; cuda: 128)")
    add("--group", type=int, default=4, metavar="N", help="query heads of a KV head (4)")
    add("--steps", type=int, default=12, metavar="N", help="measured steps of each cell (12)")
    add("--seconds", type=float, default=0.0, metavar="S", help="keep stepping so long in each cell, to be watched (0)")
    add("--seed", type=int, default=0, metavar="N", help="of keys and queries (0)")
    add("--timeout", type=float, default=30.0, metavar="S", help="end when a living rank does not answer so long (30)")
    add("--logs", metavar="DIR", help="keep there what the ranks write to stderr")
    add("--log", metavar="FILE", help="keep finished cells; with the same settings an interrupted run goes on")
    add("--no-graph", action="store_true", help="time a GPU's steps launch by launch, not as one CUDA graph")
    add("--no-balance", action="store_true", help="times only")
    add("--quick", action="store_true", help="two ranks, two sizes, under two minutes on a laptop")


def measure(options: argparse.Namespace) -> Result:
    """Measure what the log does not have yet, and return the whole."""
    plan = plan_of(options)
    log = Finished(options.log, {"bench": "shards"})
    run_all(plan, log, options.timeout, options.logs)
    return result_of(plan, log)


PARTITIONS = ("by_head", "contiguous", "round_robin", "by_layer")
DEVICES = ("cpu", "cuda")
SIZES = {"cpu": "1x2K,1x8K,1x32K,8x8K", "cuda": "1x4K,1x16K,1x64K,1x256K,8x64K"}
QUICK_SIZES = {"cpu": "1x2K,1x8K", "cuda": "1x16K,1x64K"}
MODEL = {"cpu": (4, 64), "cuda": (8, 128)}
"""KV heads and their width."""
BALANCE = {"requests": 8, "context_tokens": 65536, "chosen": 64, "kv_heads": 8, "head_dim": 64, "layers": 2}
PYRAMID = {"requests": 1, "context_tokens": 16384, "kv_heads": 8, "head_dim": 32, "layers": 8, "budgets": "pyramid"}
"""Selection of 64 of 1024 blocks, and layers that keep from 1.75 times the mean down to a quarter of it."""
KEYS = ("drift", "random")
ALONE = "contiguous"
"""What one rank runs: with everything on it, all partitions are the same."""


Finished = Log[dict[str, Any]]
"""What was found, by a task's key: cells of other settings may share a file."""


@dataclass(frozen=True, slots=True)
class Task:
    """One cell on so many ranks of a device."""

    ranks: int
    device: str
    cell: Mapping[str, Any]

    @property
    def key(self) -> list[Any]:
        return [self.ranks, self.device, dict(self.cell)]

    def is_(self, **values: object) -> bool:
        return all(self.cell.get(name) == value for name, value in values.items())


@dataclass(frozen=True, slots=True)
class ShardsPlan:
    """``tasks`` in the order they are measured: times by number of ranks, then balance."""

    device: str
    ranks: tuple[int, ...]
    partitions: tuple[str, ...]
    sizes: tuple[tuple[int, int], ...]
    kept: tuple[float, ...]
    common: Mapping[str, Any]
    balance: bool
    tasks: tuple[Task, ...] = field(default=())


def plan_of(options: argparse.Namespace) -> ShardsPlan:
    """Read the options. UsageError with what was expected."""
    device = options.device
    if device not in DEVICES:
        raise UsageError(f"--device {device!r}{nearest(device, DEVICES)}; expected cpu or cuda")
    ranks = sorted({1, *each(options.ranks, "--ranks", whole(1))})
    sizes = options.sizes or (QUICK_SIZES if options.quick else SIZES)[device]
    partitions = tuple(options.partitions.split(",")) if options.partitions else PARTITIONS
    for name in partitions:
        if name not in PARTITIONS:
            raise UsageError(f"--partitions {name!r}{nearest(name, PARTITIONS)}; expected {', '.join(PARTITIONS)}")
    heads, width = MODEL[device]
    common = {
        "layers": options.layers, "kv_heads": options.kv_heads or heads, "head_dim": options.head_dim or width,
        "group": options.group, "steps": options.steps, "seconds": options.seconds, "seed": options.seed,
        "graph": not options.no_graph,
    }  # fmt: skip
    for name in ("layers", "kv_heads", "head_dim", "group", "steps"):
        if common[name] < 1:
            raise UsageError(f"--{name.replace('_', '-')} {common[name]}: expected at least 1")
    plan = ShardsPlan(
        device,
        tuple(n for n in ranks if n <= 2 or not options.quick),
        partitions,
        tuple(_size(part) for part in sizes.split(",")),
        each(options.kept, "--kept", share),
        common,
        not options.no_balance,
    )
    return replace(plan, tasks=tuple(_tasks(plan)))


def time_cell(plan: ShardsPlan, partition: str, size: tuple[int, int], kept: float) -> dict[str, Any]:
    """Return the cell that measures time."""
    return {"partition": partition, "requests": size[0], "context_tokens": size[1], "share": kept, **plan.common}


def _tasks(plan: ShardsPlan) -> Iterator[Task]:
    for ranks in plan.ranks:
        # By size first: ranks keep what the keys of a batch are made from.
        for size in plan.sizes:
            for kept in plan.kept:
                for partition in plan.partitions if ranks > 1 else (ALONE,):
                    yield Task(ranks, plan.device, time_cell(plan, partition, size, kept))
    for ranks in plan.ranks[1:] if plan.balance else ():
        for partition in plan.partitions:
            for keys in KEYS:
                yield Task(ranks, "cpu", {"partition": partition, "keys": keys, "pages": False, **BALANCE})
            yield Task(ranks, "cpu", {"partition": partition, "pages": False, **PYRAMID})


def groups(tasks: Sequence[Task]) -> Iterator[tuple[int, str, list[Task]]]:
    """Tasks that the same ranks of the same device measure, together: they are started once."""
    for key in dict.fromkeys((task.ranks, task.device) for task in tasks):
        yield (*key, [task for task in tasks if (task.ranks, task.device) == key])


def _size(text: str) -> tuple[int, int]:
    requests, x, context = text.strip().partition("x")
    if not x or not requests.isdecimal() or int(requests) < 1:
        raise UsageError(f"--sizes {text!r}: expected REQUESTSxTOKENS, e.g. 8x64K")
    tokens = token_count(context, "--sizes")
    if tokens % 64:
        raise UsageError(f"--sizes {text!r}: expected whole blocks of 64 tokens")
    return int(requests), tokens


def run_all(plan: ShardsPlan, log: Finished, timeout_s: float, logs: str | None) -> None:
    """Measure what the log does not have. SourceError with one line when a rank is lost."""
    left = [task for task in plan.tasks if log.get(task.key) is None]
    line, done = Line(), len(plan.tasks) - len(left)
    try:
        for ranks, device, tasks in groups(left):
            line.show(f"{done} of {len(plan.tasks)}: starting {ranks} rank{'s' * (ranks > 1)}")
            pending, watch = list(tasks), ""
            for fact in _facts(ranks, device, tasks, timeout_s, logs):
                if "ready" in fact:
                    watch = ",".join(map(str, fact["ready"]["pids"]))
                else:
                    log.add(fact["found"], pending.pop(0).key)
                    done += 1
                what = f"{pending[0].cell['partition']} on {ranks}" if pending else "done"
                line.show(f"{done} of {len(plan.tasks)}: {what}   (kvscope attach {watch})")
    finally:
        line.wipe()


def _facts(ranks: int, device: str, tasks: Sequence[Task], timeout_s: float, logs: str | None) -> Iterator[_child.Fact]:
    """What the launcher says, a cell in the order of ``tasks``; its ranks end with this generator."""
    with tempfile.TemporaryDirectory(prefix="kvscope-bench-") as folder:
        cells = Path(folder, "cells.json")
        cells.write_text(json.dumps([dict(task.cell) for task in tasks]), encoding="utf-8")
        words = ["--guard", "--ranks", str(ranks), "--device", device, "--cells", str(cells)]
        words += ["--timeout", f"{timeout_s:g}", *(("--logs", logs) if logs else ())]
        yield from _child.facts("engine.lab.shards", words)


BYTES = {"cpu": 4, "cuda": 2}
MEMORY_LIMIT, BATCH_LIMIT = 1.02, 1.05
REQUEST_LIMITS = {2: 1.10, 4: 1.25}
"""Targets for round_robin: pages held, blocks selected summed over a batch of 8, and of one selection by ranks."""
TIME_COLUMNS = (
    ("size", ""), ("read", "ratio"), ("ranks", ""), ("partition", ""), ("step", "s"), ("of one rank", ""),
    ("index", "s"), ("attend", "s"), ("exchange", "s"), ("of it waiting", "s"), ("sent", "B"), ("KV a rank", "B"),
)  # fmt: skip


def result_of(plan: ShardsPlan, log: Finished) -> Result:
    """Put everything that was found together."""
    even = _even_table(plan, log)
    pays = _pays_table(plan, log)
    quantities = [
        Quantity(f"step_s.{_name(task)}", found["step_s"], "s", None, "lower")
        for task in plan.tasks
        if (found := _found(log, task)) and not task.is_(pages=False)
    ]
    return Result(
        bench="shards",
        title="KV of a request spread over ranks: attention of a decode step",
        tags={"engine": "kvscope-shards", "device": plan.device},
        settings={**plan.common, "kept": plan.kept, "ranks": plan.ranks, "keys of the times": "drift, synthetic"},
        quantities=tuple(quantities),
        tables=(_time_table(plan, log), pays, *((even, _budget_table(plan, log)) if plan.balance else ())),
        plots=tuple(_plots(plan, log)),
        says=tuple(dict.fromkeys(_says(plan, log, pays))),
        warns=tuple(_warns(plan, log)),
        extra={"cells": [_row(task, log) for task in plan.tasks]},
    )


def _row(task: Task, log: Finished) -> dict[str, Any]:
    return {"ranks": task.ranks, "device": task.device, "cell": dict(task.cell), "found": log.get(task.key)}


def _found(log: Finished, task: Task) -> dict[str, Any] | None:
    found = log.get(task.key)
    return found if found and "error" not in found else None


def _name(task: Task) -> str:
    cell = task.cell
    return f"{cell['partition']}.{task.ranks}.{cell['requests']}x{cell['context_tokens']}.{cell['share']:g}"


def size_text(size: tuple[int, int]) -> str:
    requests, tokens = size
    return f"{requests} x {tokens >> 10}K" if tokens % 1024 == 0 else f"{requests} x {tokens}"


def _step_s(plan: ShardsPlan, log: Finished, ranks: int, name: str, size: tuple[int, int], kept: float) -> float | None:
    found = _found(log, Task(ranks, plan.device, time_cell(plan, name if ranks > 1 else ALONE, size, kept)))
    return found["step_s"] if found else None


def _time_table(plan: ShardsPlan, log: Finished) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for size in plan.sizes:
        for kept in plan.kept:
            alone = _step_s(plan, log, 1, ALONE, size, kept)
            for ranks in plan.ranks:
                for name in plan.partitions if ranks > 1 else (ALONE,):
                    task = Task(ranks, plan.device, time_cell(plan, name, size, kept))
                    rows.append(_time_row(task, log, alone))
    title = "Step time, slowest rank" + (": phases by what a step is shorter without" if plan.device == "cuda" else "")
    return Table(title, tuple(name for name, _ in TIME_COLUMNS), tuple(unit for _, unit in TIME_COLUMNS), tuple(rows))


def _time_row(task: Task, log: Finished, alone: float | None) -> tuple[Cell, ...]:
    cell, found = task.cell, _found(log, task)
    name = cell["partition"] if task.ranks > 1 else "one rank"
    lead = (size_text((cell["requests"], cell["context_tokens"])), cell["share"], task.ranks, name)
    if found is None:
        return (*lead, *(None for _ in TIME_COLUMNS[4:]))
    by_rank, step = found["by_rank"], found["step_s"]
    times: list[Cell] = [max(by_rank[f"{name}_s"]) for name in ("index", "attend", "exchange")]
    times.append(None if found["graph"] else max(by_rank["wait_s"]))
    ratio = step / alone if alone else None
    return (*lead, step, ratio, *times, max(by_rank["sent_bytes"]), max(by_rank["kv_bytes"]))


def _even_table(plan: ShardsPlan, log: Finished) -> Table:
    measures = ("one choice", "choice p95", "one request", "request p95", "batch of 8")
    columns = ("keys", "ranks", "partition", *measures)
    rows: list[tuple[Cell, ...]] = []
    for task in _balance_tasks(plan, "even"):
        if found := _found(log, task):
            s = found["selected"]
            values = (s["choice"], s["choice_p95"], s["request"], s["request_p95"], s["batch"])
            rows.append((task.cell["keys"], task.ranks, task.cell["partition"], *(round(v, 3) for v in values)))
    title = "Selected blocks, 64 of 1024: fullest rank / mean (choice: one request and head; request: its 8 heads)"
    return Table(title, columns, ("",) * len(columns), tuple(rows))


def _budget_table(plan: ShardsPlan, log: Finished) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for task in _balance_tasks(plan, "pyramid"):
        found, even = _found(log, task), _memory(plan, log, task.ranks, task.cell["partition"])
        if found:
            rows.append((task.ranks, task.cell["partition"], even, round(found["pages_balance"], 3)))
    columns = ("ranks", "partition", "every layer alike", "layers from 1.75 to 0.25 of the mean")
    return Table("Pages held: fullest rank / mean", columns, ("",) * 4, tuple(rows))


def _memory(plan: ShardsPlan, log: Finished, ranks: int, name: str) -> float | None:
    """The worst balance of pages over all cells with even budgets."""
    tasks = [t for t in plan.tasks if t.ranks == ranks and t.is_(partition=name) and not t.is_(budgets="pyramid")]
    known = [found["pages_balance"] for task in tasks if (found := _found(log, task))]
    return round(max(known), 3) if known else None


def _balance_tasks(plan: ShardsPlan, budgets: str) -> list[Task]:
    tasks = [task for task in plan.tasks if task.is_(pages=False)]
    return [task for task in tasks if task.cell.get("budgets", "even") == budgets]


def _pays_table(plan: ShardsPlan, log: Finished) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for kept in plan.kept:
        for ranks in plan.ranks[1:]:
            for name in plan.partitions:
                tokens, says = pays_from(plan, log, ranks, name, kept)
                read = tokens * kept * token_bytes(plan) if tokens else None
                rows.append((kept, ranks, name, says, read))
    columns = ("read", "ranks", "partition", "faster than one rank from", "KV read a layer there")
    return Table("From which context on one request is faster", columns, ("ratio", "", "", "", "B"), tuple(rows))


def token_bytes(plan: ShardsPlan) -> int:
    """Keys and values of one token in one layer."""
    return int(2 * plan.common["kv_heads"] * plan.common["head_dim"] * BYTES[plan.device])


def pays_from(plan: ShardsPlan, log: Finished, ranks: int, name: str, kept: float) -> tuple[float | None, str]:
    """Tokens of one request from which its step is shorter than on one rank: between two measured sizes, interpolated
    in the logarithm; None (with words) where no measured size is shorter, or all are."""
    points = []
    for size in sorted(size for size in plan.sizes if size[0] == 1):
        alone, spread = (_step_s(plan, log, n, name, size, kept) for n in (1, ranks))
        if alone and spread:
            points.append((size[1], math.log(spread / alone)))
    if not points:
        return None, "not measured"
    if points[-1][1] >= 0:
        return None, f"not up to {points[-1][0]} tokens"
    above = [index for index, (_, ratio) in enumerate(points) if ratio >= 0]
    if not above:
        return None, f"{points[0][0]} tokens or less"
    (low, before), (high, after) = points[above[-1]], points[above[-1] + 1]
    at = math.exp(math.log(low) + (math.log(high) - math.log(low)) * before / (before - after))
    return at, f"about {at:.0f} tokens (interpolated)"


def _plots(plan: ShardsPlan, log: Finished) -> Iterator[Plot]:
    contexts = sorted(size[1] for size in plan.sizes if size[0] == 1)
    if len(contexts) < 2:
        return
    xs = tuple(map(float, contexts))
    for kept in plan.kept:
        ways = [(1, ALONE, "one rank"), *((n, p, f"{p}, {n}") for n in plan.ranks[1:] for p in plan.partitions)]
        series = tuple(
            Series(label, xs, tuple(_step_s(plan, log, n, name, (1, c), kept) for c in contexts))
            for n, name, label in ways
        )
        yield Plot(f"Step of one request, {kept:.0%} read", "tokens of context", "step", "s", series, even=True)


def _says(plan: ShardsPlan, log: Finished, pays: Table) -> Iterator[str]:
    for kept, ranks, name, says, _ in pays.rows:
        yield f"{name} on {ranks} ranks, {kept:.0%} read: faster than one rank from: {says}."
    for task in plan.tasks:
        if (found := log.get(task.key)) and "error" in found:
            yield f"{task.cell['partition']} on {task.ranks} ranks: {found['error']}."


def _warns(plan: ShardsPlan, log: Finished) -> Iterator[str]:
    for task in _balance_tasks(plan, "even"):
        found = _found(log, task)
        if not found or not task.is_(partition="round_robin"):
            continue
        where = f"round_robin on {task.ranks} ranks, {task.cell['keys']} keys"
        limit, selected = REQUEST_LIMITS.get(task.ranks), found["selected"]
        if limit and selected["choice"] > limit:
            yield f"{where}: one choice is {selected['choice']:.3f} on the fullest rank, above {limit}"
        if selected["batch"] > BATCH_LIMIT:
            yield f"{where}: a batch of 8 is {selected['batch']:.3f} on the fullest rank, above {BATCH_LIMIT}"
    for ranks in plan.ranks[1:]:
        memory = _memory(plan, log, ranks, "round_robin")
        if memory and memory > MEMORY_LIMIT:
            yield f"round_robin on {ranks} ranks holds {memory:.3f} on the fullest, above {MEMORY_LIMIT}"
