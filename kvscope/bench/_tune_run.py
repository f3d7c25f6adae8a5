"""Measures one setting after the other on built-in engines, one engine a block size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import count

from kvscope import signals
from kvscope.bench._tune_front import Cell
from kvscope.bench._tune_grid import Grid, Setting
from kvscope.errors import NotEnoughData
from kvscope.laboratory import Laboratory, Length
from kvscope.signals.reading import Reading
from kvscope.sources import open_target
from kvscope.sources.builtin import BuiltinEngine
from kvscope.store import Segment

CLIENTS, DOCUMENTS, TOKENS_OUT = 4, 2, 32
SETTLE_S, SPAN_S = 60.0, 30.0


@dataclass(frozen=True, slots=True)
class Work:
    """What every setting is measured under: ``tokens`` of a document, decode ``steps`` of each, knobs of the load."""

    tokens: int
    steps: int
    threads: int
    knobs: Mapping[str, str]

    @property
    def flags(self) -> tuple[str, ...]:
        longest = self.tokens + 512
        pool = 2 * (CLIENTS + DOCUMENTS) * longest * 4 // 1024 + 16
        words = ("--threads", self.threads, "--max-context", longest, "--pool-mib", pool)
        return tuple(map(str, words))


def cells(grid: Grid, work: Work, done: Mapping[str, Cell], tell: Callable[[str], None]) -> Iterator[Cell]:
    """Yield every cell of the grid that is not done yet; an engine is started only for a block size that has one."""
    for block in grid.blocks:
        left = [setting for setting in grid.of_block(block) if setting.key not in done]
        if left:
            yield from _of_block(block, left, work, tell)


def _of_block(block: int, settings: list[Setting], work: Work, tell: Callable[[str], None]) -> Iterator[Cell]:
    load = {"load.clients": CLIENTS, "load.documents": DOCUMENTS, "load.new_tokens": TOKENS_OUT, "max_running": CLIENTS}
    knobs = {name: str(value) for name, value in load.items()} | {"load.document_tokens": str(work.tokens)}
    flags = (*work.flags, "--block-tokens", str(block))
    engine = BuiltinEngine.start({**knobs, **work.knobs}, flags, lambda s: tell(f"starting the engine … {s:.0f} s"))
    try:
        assert engine.control is not None
        with closing(open_target(str(engine.ring))) as source:
            lab = Laboratory(source, engine.control, tell=tell)
            for setting, rank in zip(settings, count(17), strict=False):
                # The rank shapes pages that no setting here uses, so changing it only drops what the last one stored.
                change = {**setting.engine_knobs, "lowrank_rank": str(rank)}
                engine.control.set(change, f"{setting.name}, settling")
                lab.settle(f"{setting.name}, settling", Length(20, 0.5, SETTLE_S), 2 * CLIENTS)
                yield cell_of(lab, lab.stretch(setting.name, Length(work.steps, 1.0, SPAN_S)), setting)
    finally:
        engine.stop(keep_recorder=False)


def cell_of(lab: Laboratory, segment: Segment, setting: Setting) -> Cell:
    """Read one cell from its segment; NotEnoughData names what the engine did not tell."""
    values = []
    for name in ("kv_bytes_per_token", "decode_s_per_token"):
        found = signals.compute(name, lab.store, segment)
        if not isinstance(found, Reading):
            raise NotEnoughData(f"{setting.name}: {name}: {found.reason}; {found.remedy}")
        values.append(found.value)
    counted = []
    for metric in ("quality.tokens_right", "quality.tokens_checked"):
        _, grown = lab.store.series(metric, (), segment.start_s, segment.end_s)
        counted.append(grown[-1] - grown[0] if grown else 0.0)
    if counted[1] < 1:
        raise NotEnoughData(f"{setting.name}: no token was checked; expected a load whose answers are known")
    return Cell(setting, *values, *counted)
