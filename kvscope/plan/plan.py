"""A plan: what a request takes in an engine's pool on one GPU and on all of them, and what fits.

``per_gpu`` is the GPU that holds most (the widest pipeline stage), ``whole`` all GPUs together: bytes are summed over
them, copies included; tokens and requests are summed over data-parallel groups, whose requests are their own.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from types import ModuleType

from kvscope.errors import UsageError
from kvscope.plan import kinds
from kvscope.plan.engines import Ask, Layout
from kvscope.plan.layer import Layer
from kvscope.plan.memory import Memory
from kvscope.plan.model import token_bytes

LENGTHS = (2 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20)


@dataclass(frozen=True, slots=True)
class Figures:
    """What the checks of a plan read; a pool is None where no memory was given."""

    bytes_per_token: int
    growing_bytes_per_token: float
    state_bytes_per_request: int
    request_bytes: int
    pool_bytes: int | None = None
    pool_tokens: int | None = None
    max_concurrency: float | None = None


@dataclass(frozen=True, slots=True)
class LayerRow:
    """Layers that are alike: how many, and what one of them keeps on one GPU."""

    layer: Layer
    count: int
    bytes_per_token: float
    state_bytes: int
    request_bytes: int


@dataclass(frozen=True, slots=True)
class Point:
    """One length: what a request takes on one GPU, and how many of them the pool holds."""

    context: int
    request_bytes: int
    growing_bytes_per_token: float
    fits: float | None


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan for ``users`` requests of ``ask.context`` tokens each."""

    name: str
    engine: ModuleType
    ask: Ask
    users: int
    per_gpu: Figures
    whole: Figures
    rows: tuple[LayerRow, ...]
    points: tuple[Point, ...]
    memory: Memory | None
    mix_bytes: float | None
    rules: tuple[str, ...]
    assumed: tuple[str, ...]

    @property
    def engine_name(self) -> str:
        """The engine with the release whose rules were used."""
        release = ".".join(map(str, self.ask.options.release)) or str(self.engine.VERSION)
        return f"{self.engine.NAME} {release}".removesuffix(" 0")

    @property
    def fits(self) -> bool | None:
        """Whether all users fit, over all data-parallel groups; None where no memory was given."""
        if self.whole.max_concurrency is None:
            return None
        return self.whole.max_concurrency >= self.users

    @property
    def mix_fits(self) -> int | None:
        """How many requests of the mix fit on average, over all data-parallel groups."""
        if not self.mix_bytes or self.per_gpu.pool_bytes is None:
            return None
        return int(self.per_gpu.pool_bytes / self.mix_bytes) * self.ask.split.dp


def make_plan(
    name: str,
    engine: ModuleType,
    ask: Ask,
    users: int = 1,
    memory: Memory | None = None,
    mix: tuple[int, ...] = (),
) -> Plan:
    """Count ``ask`` as ``engine`` keeps it; UsageError for sizes that are none."""
    if ask.context < 1 or users < 1:
        raise UsageError(f"--context {ask.context} --users {users}: expected at least 1 of each")
    layouts = [engine.layout(ask, stage) for stage in range(ask.split.pp)]
    widest = max(layouts, key=lambda one: one.request_bytes)
    pool = _pool_bytes(widest, memory)
    return Plan(
        name=name,
        engine=engine,
        ask=ask,
        users=users,
        per_gpu=_figures(widest, ask.context, pool, 1),
        whole=_whole(layouts, ask, pool, widest),
        rows=_rows(ask),
        points=_points(engine, ask, pool),
        memory=memory,
        mix_bytes=_mean(engine, ask, mix),
        rules=widest.rules,
        assumed=tuple(dict.fromkeys((*_beyond(ask), *ask.model.assumed, *_room(memory), *widest.notes))),
    )


def _beyond(ask: Ask) -> tuple[str, ...]:
    """Say so where the context is longer than the model's longest."""
    most = ask.model.max_context
    if most is None or ask.context <= most:
        return ()
    return (f"{ask.context} tokens are more than the {most} this model was made for",)


def _room(memory: Memory | None) -> tuple[str, ...]:
    return memory.notes if memory else ()


def request_bytes(engine: ModuleType, ask: Ask, context: int) -> int:
    """Bytes of one request of ``context`` tokens on the GPU that holds most."""
    asked = replace(ask, context=context)
    return max(int(engine.layout(asked, stage).request_bytes) for stage in range(ask.split.pp))


def _pool_bytes(layout: Layout, memory: Memory | None) -> int | None:
    return layout.allocated if memory is None else memory.pool_bytes


def _figures(layout: Layout, context: int, pool: int | None, times: int) -> Figures:
    found = layout.fill(pool) if pool is not None and pool > 0 else None
    return Figures(
        bytes_per_token=round(layout.request_bytes / context),
        growing_bytes_per_token=layout.growing,
        state_bytes_per_request=layout.state_bytes,
        request_bytes=layout.request_bytes,
        pool_bytes=pool,
        pool_tokens=found.tokens * times if found else (None if pool is None else 0),
        max_concurrency=found.concurrency * times if found else (None if pool is None else 0.0),
    )


def _whole(layouts: list[Layout], ask: Ask, pool: int | None, widest: Layout) -> Figures:
    ranks = ask.split.attention
    held = sum(one.request_bytes for one in layouts) * ranks
    one = _figures(widest, ask.context, pool, ask.split.dp)
    return Figures(
        bytes_per_token=round(held / ask.context),
        growing_bytes_per_token=sum(found.growing for found in layouts) * ranks,
        state_bytes_per_request=sum(found.state_bytes for found in layouts) * ranks,
        request_bytes=held,
        pool_bytes=None if pool is None else pool * ask.split.gpus,
        pool_tokens=one.pool_tokens,
        max_concurrency=one.max_concurrency,
    )


def _rows(ask: Ask) -> tuple[LayerRow, ...]:
    alike = Counter(replace(layer, stage=0) for layer in ask.model.counted(ask.drafts))
    found = []
    for layer, count in alike.items():
        rows, index = kinds.rows(layer, ask.context), ask.index(layer)
        grown = (ask.row(layer) + index) / layer.ratio if rows.growing else 0.0
        if layer.kind not in ("window", "chunk"):
            grown = token_bytes(layer, ask.context, ask.forms, ask.split.attention)
        state = ask.state(layer)
        held = (rows.growing + rows.fixed) * ask.row(layer) + rows.index * index + state
        found.append(LayerRow(layer, count, grown, state, held))
    return tuple(found)


def _points(engine: ModuleType, ask: Ask, pool: int | None) -> tuple[Point, ...]:
    most = ask.model.max_context or LENGTHS[-1]
    lengths = sorted({length for length in LENGTHS if length <= max(most, ask.context)} | {ask.context})
    found = []
    for length in lengths:
        layouts = [engine.layout(replace(ask, context=length), stage) for stage in range(ask.split.pp)]
        widest = max(layouts, key=lambda one: one.request_bytes)
        fits = None
        if pool is not None and widest.allocated is None and pool > 0:
            fits = widest.fill(pool).concurrency * ask.split.dp
        found.append(Point(length, widest.request_bytes, widest.growing, fits))
    return tuple(found)


def _mean(engine: ModuleType, ask: Ask, mix: tuple[int, ...]) -> float | None:
    if not mix:
        return None
    counted = Counter(mix)
    total = math.fsum(request_bytes(engine, ask, length) * count for length, count in counted.items())
    return total / len(mix)
