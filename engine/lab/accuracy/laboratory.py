"""Measures cells: contexts are made and prefilled once, every way of keeping them is tried on the same KV."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from engine.build import geometry_of
from engine.knobs import Knobs
from engine.lab.accuracy import episodes, snapshot
from engine.lab.accuracy.cell import EQUAL_BYTES, Cell, equal_bytes
from engine.lab.accuracy.run import TOGETHER, Script, ask, hear, said
from engine.lab.accuracy.score import Answers, join, row_of
from engine.lab.accuracy.snapshot import Snapshot
from engine.lab.recall.tasks import Dialogue, Episode
from engine.llm import Engine
from engine.weights._base import Loaded

Tell = Callable[[str], None]
Make = Callable[[Engine], None]
Scripts = Callable[[Episode], tuple[list[Script], list[int]]]
SPARE_BLOCKS = 64


class Laboratory:
    """Keeps, for the newest contexts only, their episodes, their KV and what the full cache says.

    ``prepare`` may change an engine before it is asked (tests and deliberately wrong kernels do).
    """

    def __init__(self, loaded: Loaded, tell: Tell = lambda _: None) -> None:
        self.loaded, self.tell = loaded, tell
        self._data: tuple[Any, ...] = ()
        self._episodes: list[Episode] = []
        self._kept: dict[int, list[Snapshot]] = {}
        self._full: tuple[Answers, Answers] | None = None

    @torch.inference_mode()
    def measure(self, cell: Cell) -> dict[str, Any]:
        """One row, in the words of the table. ValueError says what of the cell cannot be had."""
        cell = self.solved(cell)
        answers, held = self.answers(cell)
        if self._full is None:
            self._full = self._answers(cell, replace(snapshot.plain(), **_beside(cell)))[0]
        return {**row_of(*answers, self._full), "bytes": held, "knobs": cell.knobs}

    @torch.inference_mode()
    def answers(self, cell: Cell, prepare: Make = lambda _: None) -> tuple[tuple[Answers, Answers], float]:
        """What a cell says to both turns, and the bytes that one context's KV took in it."""
        self._take(cell)
        return self._answers(cell, cell.settings, prepare)

    def _take(self, cell: Cell) -> None:
        if cell.data != self._data:
            sizes = (cell.task, cell.seed, cell.context, cell.density, cell.documents, cell.dialogues)
            made = episodes.several(self.loaded, *sizes)
            self._episodes = [_swapped(one) for one in made] if cell.fresh else made
            self._data, self._full, self._kept = cell.data, None, {}

    @torch.inference_mode()
    def heard(self, cell: Cell, scripts: Scripts, prepare: Make) -> tuple[Tensor, Tensor, Tensor]:
        """Logits of every step that ``scripts`` of an episode listen to, right tokens (-1: nobody knows), lengths."""
        self._take(cell)
        logits, right, lengths = [], [], []
        for number, episode in enumerate(self._episodes):
            self.tell(f"{cell.context} tokens, context {number + 1} of {len(self._episodes)}")
            asked, known = scripts(episode)
            engine = self._engine(cell, cell.settings, max(len(one.prompt) + len(one.fed) for one in asked))
            prepare(engine)
            snapshot.put(engine, self._snapshots(cell)[number])
            logits += hear(engine, asked)
            right += known
            lengths += [len(one.prompt) + place for one in asked for place in one.scored]
        return torch.cat(logits), torch.tensor(right), torch.tensor(lengths)

    def solved(self, cell: Cell) -> Cell:
        """The cell with its knobs worked out where they depend on the model's shape."""
        if cell.role != EQUAL_BYTES:
            return cell
        shape = geometry_of(self.loaded.config, cell.settings, cell.block)
        return cell.with_knobs(**equal_bytes(cell.settings, shape, cell.context))

    def _answers(
        self, cell: Cell, knobs: Knobs, prepare: Make = lambda _: None
    ) -> tuple[tuple[Answers, Answers], float]:
        both, held = [], []
        for number, episode in enumerate(self._episodes):
            self.tell(f"context {number + 1} of {len(self._episodes)}")
            engine = self._engine(cell, knobs, _longest(episode, cell))
            prepare(engine)
            meter = _Meter()
            if not cell.aware:
                snapshot.put(engine, self._snapshots(cell)[number])
                meter.held = float(engine.cache.resident_bytes())
            both.append(ask(engine, episode, cell.aware, meter if cell.aware else lambda _: None))
            held.append(meter.held)
        return (join([one for one, _ in both]), join([one for _, one in both])), sum(held) / len(held)

    def _snapshots(self, cell: Cell) -> list[Snapshot]:
        if cell.block not in self._kept:
            made = []
            for number, episode in enumerate(self._episodes):
                self.tell(f"reading context {number + 1} of {len(self._episodes)}")
                made.append(
                    snapshot.take(self._engine(cell, snapshot.plain(), _longest(episode, cell)), episode.document)
                )
            # One block size at a time: KV of all contexts is what this costs in memory.
            self._kept = {cell.block: made}
        return self._kept[cell.block]

    def _engine(self, cell: Cell, knobs: Knobs, longest: int) -> Engine:
        shape = geometry_of(self.loaded.config, knobs, cell.block)
        tail, copies = longest - cell.context + cell.block, knobs.max_running if cell.aware else 1
        blocks = copies * shape.blocks_for(longest) + knobs.max_running * (shape.blocks_for(tail) + 2) + SPARE_BLOCKS
        pool = blocks * shape.hot_page_bytes * shape.pages_per_block
        config, model = self.loaded.config, self.loaded.model
        return Engine(config, model, knobs, pool_bytes=pool, max_context=longest, block_tokens=cell.block)


class _Meter:
    """Bytes a request of its own holds, as last seen while all that ran were decoding."""

    def __init__(self) -> None:
        self.held = 0.0

    def __call__(self, engine: Engine) -> None:
        running = engine.scheduler.running
        if running and all(request.prefilled for request in running):
            self.held = engine.cache.resident_bytes() / len(running)


def _longest(episode: Episode, cell: Cell) -> int:
    """Tokens of the longest request of `ask`."""
    turns = [len(said([pair.first])) + len(said([pair.second])) for pair in episode.dialogues]
    return len(episode.document) + 2 * (1 if cell.aware else TOGETHER) * max(turns) + cell.block


def _beside(cell: Cell) -> dict[str, Any]:
    """Settings that decide how a cell's questions are put, not what is kept."""
    mine = cell.settings
    return {name: getattr(mine, name) for name in ("prefix_cache", "prefill_chunk", "max_running")}


def _swapped(episode: Episode) -> Episode:
    return Episode(episode.document, tuple(Dialogue(pair.second, pair.first) for pair in episode.dialogues))
