"""Which cells to measure on how many ranks. A cell is what `engine.shards` takes, as plain data."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kvscope.amounts import token_count
from kvscope.errors import UsageError, nearest

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


@dataclass(frozen=True, slots=True)
class Task:
    """One cell on so many ranks of a device."""

    ranks: int
    device: str
    cell: Mapping[str, Any]

    @property
    def key(self) -> str:
        return json.dumps([self.ranks, self.device, dict(self.cell)], sort_keys=True)

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
    ranks = sorted({1, *(_whole(part, "--ranks") for part in options.ranks.split(","))})
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
        tuple(_share(part) for part in options.kept.split(",")),
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


def _whole(text: str, option: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise UsageError(f"{option} {text!r}: expected whole numbers from 1 on, e.g. 1,2,4")
    return int(text)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise UsageError(f"--kept {text!r}: expected more than 0 and at most 1")
    return share
