"""The tables of a shards run: step time and balance by partition and number of ranks, and from where on it pays."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from kvscope.bench._shards_log import ShardsLog
from kvscope.bench._shards_plan import ALONE, ShardsPlan, Task, time_cell
from kvscope.bench.result.quantity import Quantity
from kvscope.bench.result.result import Cell, Plot, Result, Series, Table

BYTES = {"cpu": 4, "cuda": 2}
MEMORY_LIMIT, BATCH_LIMIT = 1.02, 1.05
REQUEST_LIMITS = {2: 1.10, 4: 1.25}
"""Targets for round_robin: pages held, blocks selected summed over a batch of 8, and of one selection by ranks."""
TIME_COLUMNS = (
    ("size", ""), ("read", "ratio"), ("ranks", ""), ("partition", ""), ("step", "s"), ("of one rank", ""),
    ("index", "s"), ("attend", "s"), ("exchange", "s"), ("of it waiting", "s"), ("sent", "B"), ("KV a rank", "B"),
)  # fmt: skip


def make(plan: ShardsPlan, log: ShardsLog) -> Result:
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


def _row(task: Task, log: ShardsLog) -> dict[str, Any]:
    return {"ranks": task.ranks, "device": task.device, "cell": dict(task.cell), "found": log.get(task)}


def _found(log: ShardsLog, task: Task) -> dict[str, Any] | None:
    found = log.get(task)
    return found if found and "error" not in found else None


def _name(task: Task) -> str:
    cell = task.cell
    return f"{cell['partition']}.{task.ranks}.{cell['requests']}x{cell['context_tokens']}.{cell['share']:g}"


def size_text(size: tuple[int, int]) -> str:
    requests, tokens = size
    return f"{requests} x {tokens >> 10}K" if tokens % 1024 == 0 else f"{requests} x {tokens}"


def _step_s(
    plan: ShardsPlan, log: ShardsLog, ranks: int, name: str, size: tuple[int, int], kept: float
) -> float | None:
    found = _found(log, Task(ranks, plan.device, time_cell(plan, name if ranks > 1 else ALONE, size, kept)))
    return found["step_s"] if found else None


def _time_table(plan: ShardsPlan, log: ShardsLog) -> Table:
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


def _time_row(task: Task, log: ShardsLog, alone: float | None) -> tuple[Cell, ...]:
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


def _even_table(plan: ShardsPlan, log: ShardsLog) -> Table:
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


def _budget_table(plan: ShardsPlan, log: ShardsLog) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for task in _balance_tasks(plan, "pyramid"):
        found, even = _found(log, task), _memory(plan, log, task.ranks, task.cell["partition"])
        if found:
            rows.append((task.ranks, task.cell["partition"], even, round(found["pages_balance"], 3)))
    columns = ("ranks", "partition", "every layer alike", "layers from 1.75 to 0.25 of the mean")
    return Table("Pages held: fullest rank / mean", columns, ("",) * 4, tuple(rows))


def _memory(plan: ShardsPlan, log: ShardsLog, ranks: int, name: str) -> float | None:
    """The worst balance of pages over all cells with even budgets."""
    tasks = [t for t in plan.tasks if t.ranks == ranks and t.is_(partition=name) and not t.is_(budgets="pyramid")]
    known = [found["pages_balance"] for task in tasks if (found := _found(log, task))]
    return round(max(known), 3) if known else None


def _balance_tasks(plan: ShardsPlan, budgets: str) -> list[Task]:
    tasks = [task for task in plan.tasks if task.is_(pages=False)]
    return [task for task in tasks if task.cell.get("budgets", "even") == budgets]


def _pays_table(plan: ShardsPlan, log: ShardsLog) -> Table:
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


def pays_from(plan: ShardsPlan, log: ShardsLog, ranks: int, name: str, kept: float) -> tuple[float | None, str]:
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


def _plots(plan: ShardsPlan, log: ShardsLog) -> Iterator[Plot]:
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


def _says(plan: ShardsPlan, log: ShardsLog, pays: Table) -> Iterator[str]:
    for kept, ranks, name, says, _ in pays.rows:
        yield f"{name} on {ranks} ranks, {kept:.0%} read: faster than one rank from: {says}."
    for task in plan.tasks:
        if (found := log.get(task)) and "error" in found:
            yield f"{task.cell['partition']} on {task.ranks} ranks: {found['error']}."


def _warns(plan: ShardsPlan, log: ShardsLog) -> Iterator[str]:
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
