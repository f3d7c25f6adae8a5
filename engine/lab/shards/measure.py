"""One cell on one rank: build its part, step together with the others, say what that took and how even it was."""

from __future__ import annotations

from dataclasses import asdict
from statistics import median
from time import monotonic, perf_counter
from typing import Any

import numpy as np
import torch

from engine.lab.shards import partitions
from engine.lab.shards.build import build
from engine.lab.shards.cells import Cell
from engine.lab.shards.check import differences
from engine.lab.shards.content import Content
from engine.lab.shards.dealt import Balance, Counts, Dealt, balance, deal
from engine.lab.shards.group import EXCHANGE, RECEIVE, Group
from engine.lab.shards.instruments import RankRecorder
from engine.lab.shards.operators import Plain
from engine.lab.shards.step import ATTEND, INDEX, Step

SPENT = ("index", "attend", "exchange", "wait")
DRAWS = 4
"""Different queries, taken in turn."""
BALANCE_DRAWS = 8


def measure(cell: Cell, group: Group, recorder: RankRecorder | None = None) -> dict[str, Any]:
    """What every rank found, the same on each. Raises ValueError, on each, where the cell cannot be spread so."""
    dealt = deal(partitions.get(cell.partition), cell.shape, group.size)
    found = _timed(cell, dealt, group, recorder) if cell.pages else _balanced(cell, dealt, group)
    held = dealt.blocks()
    return {**found, "pages_by_rank": held.tolist(), "pages_balance": float(held.max() / held.mean())}


def read(step: Step) -> Counts:
    """Blocks this rank's parts read in the last step, int64 [layers, requests, kv_heads]."""
    shape = step.dealt.shape
    counts = np.zeros((shape.layers, shape.requests, shape.kv_heads), np.int64)
    for layer, held in enumerate(step.parts):
        if held is not None:
            counts[layer, :, held.first_head : held.first_head + held.heads] = held.read.cpu().numpy()
    return counts


def _timed(cell: Cell, dealt: Dealt, group: Group, recorder: RankRecorder | None) -> dict[str, Any]:
    content = Content(dealt.shape, cell.keys, cell.seed, group.device)
    step = build(dealt, content, group, pages=True)
    kv_bytes = sum(held.kv_bytes for held in step.parts if held is not None)
    queries = [content.asked(draw) for draw in range(DRAWS if group.device == "cpu" else 1)]
    for _ in range(2):
        step.run(queries[0])
    if recorder is not None:
        recorder.start(cell, kv_bytes)
    phases: dict[str, float] = {}
    if group.device != "cpu" and cell.graph:
        from engine.lab.shards.replay import replayed_phases

        phases = replayed_phases(step, queries[0], cell.steps)
    rows, draws = _steps(cell, step, queries, recorder)
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    own = {name: median(columns[name]) for name in ("step", *SPENT)} | phases
    everyones = group.told([*own.values(), columns["sent"][-1], float(kv_bytes)]).T.tolist()
    names = (*(f"{name}_s" for name in own), "sent_bytes", "kv_bytes")
    by_rank = dict(zip(names, everyones, strict=True))
    # A step has ended when it has on every rank.
    slowest = median(max(row) for row in columns["steps"])
    return {
        "step_s": max(by_rank["step_s"]) if phases else slowest,
        "graph": bool(phases),
        "by_rank": by_rank,
        "memory_balance": max(by_rank["kv_bytes"]) * group.size / sum(by_rank["kv_bytes"]),
        "selected": asdict(draws),
        **(differences(step, content, queries[0]) if cell.check else {}),
    }


def _steps(
    cell: Cell, step: Step, queries: list[list[torch.Tensor]], recorder: RankRecorder | None
) -> tuple[list[dict[str, Any]], Balance]:
    group, rows, draws = step.group, [], []
    group.clock.on = True
    began, number, going = monotonic(), 0, True
    while going:
        group.told([0.0])
        sent, started = group.sent_bytes, perf_counter()
        step.run(queries[number % len(queries)])
        if group.device != "cpu":
            torch.cuda.synchronize()
        step_s = perf_counter() - started
        spent = _spent(group)
        sent = group.sent_bytes - sent
        counts = read(step)
        told = group.told([step_s, *counts.ravel().astype(float).tolist()]).numpy()
        draws.append(told[:, 1:].reshape(group.size, *counts.shape).astype(np.int64))
        rows.append({"step": step_s, **spent, "sent": float(sent), "steps": told[:, 0].tolist()})
        if recorder is not None:
            recorder.step(cell, step_s, spent, int(counts.sum()), sent)
        number += 1
        # The first rank's clock decides for all.
        going = bool(group.told([float(number < cell.steps or monotonic() - began < cell.seconds)])[0, 0])
    group.clock.on = False
    return rows, balance(draws)


def _spent(group: Group) -> dict[str, float]:
    """Seconds of the step just run. Waiting is what an exchange took longer here than on the rank that came last."""
    spans = group.clock.take()
    gathers, received = spans.get(EXCHANGE, []), sum(spans.get(RECEIVE, []))
    fastest = group.told(gathers).amin(0).tolist() if gathers else []
    return {
        "index": sum(spans.get(INDEX, [])),
        "attend": sum(spans.get(ATTEND, [])),
        "exchange": sum(gathers) + received,
        "wait": sum(own - least for own, least in zip(gathers, fastest, strict=True)) + received,
    }


def _balanced(cell: Cell, dealt: Dealt, group: Group) -> dict[str, Any]:
    """Selection alone, by the same exchange of candidates, over several draws of queries."""
    content = Content(dealt.shape, cell.keys, cell.seed, group.device)
    step = build(dealt, content, group, pages=False)
    operators, draws = step.operators, []
    assert isinstance(operators, Plain)
    for draw in range(BALANCE_DRAWS):
        for layer, held in enumerate(step.parts):
            if held is not None:
                edge = step.choose(content.queries(layer, draw), layer)
                operators.chosen(held, edge)
        counts = read(step)
        told = group.told(counts.ravel().astype(float).tolist()).numpy()
        draws.append(told.reshape(group.size, *counts.shape).astype(np.int64))
    return {"selected": asdict(balance(draws)), "sent_bytes": group.sent_bytes}
