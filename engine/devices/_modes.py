"""What a step needs that outlives it, by batch size and mode: buffers, readers, graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from engine.devices._base import Batch, Device, Mode, Reader
from engine.forms import HOT
from engine.kernels._base import DecodeBatch
from engine.kernels._cuda.graph import BUCKETS, StepGraphs, bucket_for
from engine.policies._base import Run

if TYPE_CHECKING:
    from engine.llm import Engine
    from engine.request import Request

LONG = 64
"""Blocks of the imagined context that says which forms a policy gives pages."""
Outcome = tuple[Tensor, Tensor]


class Modes:
    """Everything is made anew where the engine has another cache."""

    def __init__(self, engine: Engine, device: Device) -> None:
        self.engine, self.device = engine, device
        self.graphs, self.capture_s = StepGraphs(), 0.0
        self._forget()

    def _forget(self) -> None:
        engine = self.engine
        self._cache = engine.cache
        self._batches: dict[int, Batch] = {}
        self._tables: dict[int, tuple[Tensor, list[tuple[list[int], int] | None]]] = {}
        self._readers: dict[tuple[Mode, int], Reader] = {}
        self._outcomes: dict[tuple[Mode, int], Outcome] = {}
        self._now: tuple[object, Mode] | None = None
        self.graphs.forget()
        self.width = engine.cache.geometry.blocks_for(engine.scheduler.max_context)
        seen = engine.config.windows or (0,) * engine.config.layers
        # A window that reaches back to every first token is no window.
        self.windows = tuple(window if window < engine.scheduler.max_context else 0 for window in seen)

    def now(self) -> Mode:
        """What the engine's present settings ask for."""
        engine = self.engine
        if engine.cache is not self._cache:
            self._forget()
        there = set(engine.cache.cold_forms())
        if self._now is not None and self._now[0] is engine.knobs and there <= set(self._now[1].forms):
            return self._now[1]
        knobs, policy = engine.knobs, engine.residency.policy
        selector, name = knobs.operators
        careful = engine.residency.tier is not None or bool(knobs.promote_after and policy.SPARSE)
        keep = policy.keep(knobs, engine.cache.geometry.block_tokens)
        mode = Mode(name, selector, keep, tuple(sorted(there | self._freezes())), careful)
        self._now = (knobs, mode)
        return mode

    def _freezes(self) -> set[str]:
        """Cold forms that the policy would give pages of a long context."""
        engine, shape = self.engine, self.engine.cache.geometry
        if not engine.residency.policy.SPARSE:
            return set()
        importance = torch.rand(1, LONG, shape.kv_heads, generator=torch.Generator().manual_seed(0))
        target = engine.residency.policy.place(Run(importance, shape.block_tokens), engine.knobs)
        given = set(torch.unique(target).tolist())
        return {form.NAME for code, form in engine.cache.forms.items() if code in given and code != HOT}

    def batch(self, rows: int) -> Batch:
        if rows not in self._batches:
            self._batches[rows] = Batch(rows, self.width, self.device.device)
            host = torch.zeros(rows, self.width, dtype=torch.int32)
            self._tables[rows] = (host, [None] * rows)
        return self._batches[rows]

    def rows(self, requests: int) -> int:
        """Rows of the batch: a bucket's where there are graphs."""
        return bucket_for(requests) if self.device.graphs and requests <= BUCKETS[-1] else requests

    def reader(self, mode: Mode, batch: Batch) -> Reader:
        key = (mode, batch.requests)
        if key not in self._readers:
            self._readers[key] = self.device.operators.reader(self._cache.pools(mode.forms), batch, mode)
        return self._readers[key]

    def wider(self, mode: Mode, batch: Batch) -> Reader | None:
        """Chooses more than a step reads, for the host to fetch ahead."""
        prefetch = self.engine.knobs.prefetch
        if mode.keep is None or self.engine.residency.tier is None or prefetch <= 0:
            return None
        keep = replace(mode.keep, share=min(1.0, mode.keep.share * (1.0 + prefetch)))
        return self.device.operators.chooser(self._cache.pools(mode.forms), batch, replace(mode, keep=keep))

    def fill(self, batch: Batch, mode: Mode, requests: Sequence[Request], before: Sequence[Request]) -> None:
        """Tell the device whose step it is; a token that is still on its way comes from a row of ``before``."""
        rows = {id(request): row for row, request in enumerate(before)}
        columns, keep, tokens = [], mode.keep, self._cache.geometry.block_tokens
        for request in requests:
            n = request.length
            wanted, window = (keep.blocks_for(n), keep.window_start(n)) if keep is not None else (0, 0)
            source = rows[id(request)] if request.ahead else -1
            columns.append((n, wanted, window, source, 0 if request.ahead else request.newest))
        last = [request.length - 1 for request in requests]
        batch.ids = np.array([one.block_table[n // tokens] for one, n in zip(requests, last, strict=True)])
        batch.slots = np.array(last) % tokens
        batch.longest = max(last) + 1
        batch.now = DecodeBatch(batch.table[:, : self._cache.geometry.blocks_for(batch.longest)], batch.lens)
        numbers = torch.zeros(5, batch.requests, dtype=torch.int32)
        numbers[:, : len(columns)] = torch.tensor(columns, dtype=torch.int32).T
        _overwrite(batch.numbers, numbers)
        host, state = self._tables[batch.requests]
        changed = False
        for row, request in enumerate(requests):
            held = state[row]
            if held is None or held[0] is not request.block_table or held[1] != len(request.block_table):
                table = request.block_table[: self.width]
                host[row, : len(table)] = torch.tensor(table, dtype=torch.int32)
                state[row], changed = (request.block_table, len(request.block_table)), True
        if changed:
            _overwrite(batch.table, host)

    def has(self, mode: Mode, requests: int) -> bool:
        """Whether the graph for so many requests is there."""
        rows = min((size for m, size in self._outcomes if m == mode and size >= requests), default=0)
        return rows > 0

    def graph(
        self, mode: Mode, batch: Batch, ready: Callable[[], None], step: Callable[[], Outcome]
    ) -> Callable[[], Outcome]:
        """Replays the step; captured at first, after ``ready``."""
        key = (mode, batch.requests)
        if key not in self._outcomes:
            ready()
            began = perf_counter()
            self.reader(mode, batch)

            def kept() -> None:
                self._outcomes[key] = step()

            self.graphs.capture(key, kept)
            self.capture_s += perf_counter() - began

        def replay() -> Outcome:
            self.graphs.replay(key)
            return self._outcomes[key]

        return replay

    @property
    def compiles(self) -> tuple[int, float]:
        """Graphs captured and kernels compiled or loaded so far, and the seconds that captures took."""
        (made, seconds), own = self.device.operators.compiles, self.graphs
        return made + own.captures, seconds + self.capture_s


def _overwrite(target: Tensor, source: Tensor) -> None:
    """Copy without waiting for the device, where it can."""
    if target.device.type == "cuda":
        target.copy_(source.pin_memory(), non_blocking=True)
    else:
        target.copy_(source)
