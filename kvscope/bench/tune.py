"""Sweep block size, importance and what is kept together on the built-in engine, and propose one setting.

Every setting runs the same load, whose right answers are known. What comes out: which settings no other beats in bytes
of a held token, speed of decode and right tokens, and the best of those that lose no more than --bar points, with its
price. hot_share is how much of the context is important enough for full precision, evict_share how much is not worth
keeping at all, kept_share how much a step of decode reads.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import count, product
from math import sqrt
from typing import Any

from kvscope import signals
from kvscope.amounts import token_count
from kvscope.bench._child import Log
from kvscope.errors import NotEnoughData, UsageError, nearest
from kvscope.laboratory import Laboratory, Length
from kvscope.progress import Line
from kvscope.result.result import Cell, Plot, Quantity, Result, Series, Table
from kvscope.signals.reading import Reading
from kvscope.sources import open_target
from kvscope.sources.builtin import BuiltinEngine, split_knobs
from kvscope.store import Segment

AXES = ("kept_share", "hot_share", "evict_share", "cold_form")


BAR = 1.0
TOKENS, QUICK_TOKENS = 8192, 2048
STEPS, QUICK_STEPS = 400, 120


def configure(parser: argparse.ArgumentParser) -> None:
    """The bar, the aim, what is swept."""
    add = parser.add_argument
    add("--bar", type=float, default=BAR, metavar="POINTS", help=f"right tokens that may be lost, of 100 ({BAR:g})")
    add("--aim", default="balanced", help="balanced (speed for each byte), memory or speed (balanced)")
    add("--blocks", metavar="N,…", help="tokens of a block (16,32,64)")
    add("--kept", metavar="SHARE,…", help="kept_share (0.125,0.25,0.5)")
    add("--hot", metavar="SHARE,…", help="hot_share (0.05,0.2)")
    add("--evict", metavar="SHARE,…", help="evict_share (0,0.25)")
    add("--cold", metavar="FORM,…", help="cold_form (cold_int8,cold_int4)")
    add("--context", metavar="N", help="tokens of a document (8K)")
    add("--steps", type=int, metavar="N", help=f"decode steps of each setting ({STEPS})")
    add("--set", action="append", default=[], metavar="NAME=VALUE", help="other knobs of the engine, for all settings")
    add("--threads", type=int, default=2, help="threads of the engine (2)")
    add("--log", metavar="FILE", help="keep finished settings; with the same options an interrupted sweep goes on")
    add("--quick", action="store_true", help="ten settings of short contexts, under two minutes on a laptop")


def measure(options: argparse.Namespace) -> Result:
    """Measure every setting that the log does not have, and propose one."""
    grid, work = _plan(options)
    about = {"blocks": grid.blocks, **grid.axes, "context": work.tokens, "steps": work.steps, "set": options.set}
    log = Log(options.log, {**about, "threads": work.threads}, Tried.as_json, Tried.from_json)
    line = Line()
    done = {one.setting.key for one in log.parts()}
    try:
        for cell in cells(grid, work, done, lambda text: line.show(f"{len(log) + 1} of {len(grid)}: {text}")):
            log.add(cell, cell.setting.key)
    finally:
        line.wipe()
    found = tune(log.parts(), options.bar / 100, options.aim)
    tags = {"engine": "kvscope-engine", "workload": f"{work.tokens} tokens of context"}
    return result_of(found, options.bar / 100, tags, {**about, "bar": options.bar, "aim": options.aim})


def _plan(options: argparse.Namespace) -> tuple[Grid, Work]:
    if options.aim not in AIMS:
        raise UsageError(f"--aim {options.aim!r}{nearest(options.aim, AIMS)}; expected {', '.join(AIMS)}")
    if not 0 <= options.bar < 100:
        raise UsageError(f"--bar {options.bar:g}: expected points from 0 to 100")
    steps = options.steps or (QUICK_STEPS if options.quick else STEPS)
    if steps < 20:
        raise UsageError(f"--steps {steps}: expected at least 20")
    short = QUICK_TOKENS if options.quick else TOKENS
    tokens = token_count(options.context, "--context") if options.context else short
    names = {"kept_share": options.kept, "hot_share": options.hot, "evict_share": options.evict}
    grid = grid_of(options.quick, options.blocks, {**names, "cold_form": options.cold})
    return grid, Work(tokens, steps, options.threads, split_knobs(options.set))


@dataclass(frozen=True, slots=True)
class Setting:
    """``knobs`` empty: everything kept at full precision and read, which the others are held against."""

    block_tokens: int
    knobs: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        if not self.knobs:
            return f"full, blocks of {self.block_tokens}"
        return f"blocks of {self.block_tokens}, " + ", ".join(f"{name}={value}" for name, value in self.knobs)

    @property
    def key(self) -> str:
        """The name of this setting in JSON."""
        return "_".join([f"b{self.block_tokens}", *(f"{name}{value}" for name, value in self.knobs)])

    @property
    def engine_knobs(self) -> dict[str, str]:
        if not self.knobs:
            return {"policy": "full"}
        return {"policy": "combined", "kernels": "block", **dict(self.knobs)}


@dataclass(frozen=True, slots=True)
class Grid:
    """``blocks`` are tokens of a block; ``axes`` name → values of a knob."""

    blocks: tuple[int, ...]
    axes: Mapping[str, tuple[str, ...]]

    def of_block(self, block_tokens: int) -> list[Setting]:
        """Every setting with this block size, the full cache first."""
        names = list(self.axes)
        cells = (tuple(zip(names, values, strict=True)) for values in product(*self.axes.values()))
        return [Setting(block_tokens), *(Setting(block_tokens, cell) for cell in cells)]

    def __len__(self) -> int:
        return sum(len(self.of_block(block)) for block in self.blocks)


FULL = Grid(
    (16, 32, 64),
    {
        "kept_share": ("0.125", "0.25", "0.5"),
        "hot_share": ("0.05", "0.2"),
        "evict_share": ("0", "0.25"),
        "cold_form": ("cold_int8", "cold_int4"),
    },
)
QUICK = Grid(
    (16, 64),
    {"kept_share": ("0.125", "0.25"), "hot_share": ("0.1",), "evict_share": ("0", "0.25"), "cold_form": ("cold_int8",)},
)


def grid_of(quick: bool, blocks: str | None, chosen: Mapping[str, str | None]) -> Grid:
    """Return the grid with what was chosen on the command line in place of its own values; UsageError."""
    base = QUICK if quick else FULL
    axes = {name: values_of(chosen.get(name)) or base.axes[name] for name in AXES}
    try:
        sizes = tuple(sorted({int(text) for text in values_of(blocks)})) or base.blocks
    except ValueError:
        sizes = (0,)
    if min(sizes) < 1:
        raise UsageError(f"--blocks {blocks!r}: expected tokens of a block, with commas between them")
    return Grid(sizes, axes)


def values_of(text: str | None) -> tuple[str, ...]:
    """Split ``A,B``; nothing gives nothing."""
    return tuple(dict.fromkeys(part.strip() for part in (text or "").split(",") if part.strip()))


AIMS = ("balanced", "memory", "speed")


@dataclass(frozen=True, slots=True)
class Tried:
    """One setting measured: bytes of a held token, seconds of decode a token, ``right`` of ``checked`` tokens."""

    setting: Setting
    bytes_per_token: float
    token_s: float
    right: float
    checked: float

    @property
    def share(self) -> float:
        return self.right / self.checked

    @property
    def error(self) -> float:
        """Half of a 95 % interval; with nothing wrong it is what three of so many would have been."""
        return max(1.96 * sqrt(self.share * (1 - self.share) / self.checked), 3 / self.checked)

    @property
    def speed(self) -> float:
        """Tokens of decode a second."""
        return 1 / self.token_s

    def as_json(self) -> dict[str, Any]:
        return {
            "block_tokens": self.setting.block_tokens,
            "knobs": [list(pair) for pair in self.setting.knobs],
            "bytes_per_token": self.bytes_per_token,
            "token_s": self.token_s,
            "right": self.right,
            "checked": self.checked,
        }

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Tried:
        """Read one back; KeyError, TypeError or ValueError when it is none."""
        knobs = tuple((str(name), str(value)) for name, value in found["knobs"])
        numbers = (float(found[name]) for name in ("bytes_per_token", "token_s", "right", "checked"))
        return cls(Setting(int(found["block_tokens"]), knobs), *numbers)


@dataclass(frozen=True, slots=True)
class Tuned:
    """``full``: the fastest full cache; ``front``: cells that no other beats in bytes, speed and right tokens at once;
    ``chosen``: the one to take, None where no compressed cell passes the bar.
    """

    full: Tried
    cells: tuple[Tried, ...]
    front: tuple[Tried, ...]
    chosen: Tried | None


def tune(cells: Sequence[Tried], bar: float, aim: str) -> Tuned:
    """Choose by ``aim`` among the cells that lose at most ``bar`` of the right tokens; needs one full cell."""
    full = max((cell for cell in cells if not cell.setting.knobs), key=lambda cell: cell.speed)
    packed = [cell for cell in cells if cell.setting.knobs]
    good = [cell for cell in packed if passes(cell, full, bar)]
    front = tuple(cell for cell in cells if not any(_beats(other, cell) for other in cells))
    return Tuned(full, tuple(cells), front, max(good, key=_worth(aim, full), default=None))


def passes(cell: Tried, full: Tried, bar: float) -> bool:
    """Whether it loses no more than the bar, as measured."""
    return cell.share >= full.share - bar


def surely(cell: Tried, full: Tried, bar: float) -> bool:
    """Whether it passes at the bad end of its interval too."""
    return cell.share - cell.error >= full.share - bar


def _worth(aim: str, full: Tried) -> Callable[[Tried], tuple[float, ...]]:
    if aim == "memory":
        return lambda cell: (float(cell.speed >= full.speed), -cell.bytes_per_token)
    if aim == "speed":
        return lambda cell: (cell.speed, -cell.bytes_per_token)
    return lambda cell: (cell.speed / cell.bytes_per_token,)


def _beats(one: Tried, other: Tried) -> bool:
    better = (other.bytes_per_token - one.bytes_per_token, one.speed - other.speed, one.share - other.share)
    return min(better) >= 0 and max(better) > 0


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


def cells(grid: Grid, work: Work, done: Collection[str], tell: Callable[[str], None]) -> Iterator[Tried]:
    """Yield every cell of the grid that is not done yet; an engine is started only for a block size that has one."""
    for block in grid.blocks:
        left = [setting for setting in grid.of_block(block) if setting.key not in done]
        if left:
            yield from _of_block(block, left, work, tell)


def _of_block(block: int, settings: list[Setting], work: Work, tell: Callable[[str], None]) -> Iterator[Tried]:
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


def cell_of(lab: Laboratory, segment: Segment, setting: Setting) -> Tried:
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
    return Tried(setting, *values, *counted)


def result_of(found: Tuned, bar: float, tags: Mapping[str, str], settings: Mapping[str, Any]) -> Result:
    """Put cells, front and proposal into one result."""
    return Result(
        bench="tune",
        title="Bytes, speed and right tokens by setting",
        tags=tags,
        settings=settings,
        quantities=tuple(_quantities(found)),
        tables=(_table(found, bar),),
        plots=(_plot(found, bar),),
        says=tuple(_says(found, bar)),
        warns=tuple(_warns(found, bar)),
        extra={
            "cells": [cell.as_json() for cell in found.cells],
            "front": [cell.setting.key for cell in found.front],
            "chosen": found.chosen.as_json() if found.chosen else None,
        },
    )


def _quantities(found: Tuned) -> Iterator[Quantity]:
    for cell in found.cells:
        key = cell.setting.key
        yield Quantity(f"{key}.bytes_per_token", cell.bytes_per_token, "B", None, "lower")
        yield Quantity(f"{key}.decode_tokens_per_s", cell.speed, "tokens/s", None, "higher")
        yield Quantity(f"{key}.right_share", cell.share, "ratio", cell.error, "higher")


def _table(found: Tuned, bar: float) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for cell in sorted(found.cells, key=lambda cell: cell.bytes_per_token):
        knobs = dict(cell.setting.knobs)
        values = [knobs.get(name, "-") for name in AXES]
        verdict = "chosen" if cell is found.chosen else "front" if cell in found.front else ""
        price = (cell.bytes_per_token / found.full.bytes_per_token, cell.speed / found.full.speed)
        bars = "full" if not knobs else "yes" if passes(cell, found.full, bar) else "no"
        rows.append((str(cell.setting.block_tokens), *values, *price, cell.share, cell.error, bars, verdict))
    columns = ("blocks", *AXES, "bytes", "speed", "right", "±", "passes", "")
    units = ("", *("",) * len(AXES), "x", "x", "ratio", "ratio", "", "")
    return Table("Settings, by bytes of a held token", columns, units, tuple(rows))


def _plot(found: Tuned, bar: float) -> Plot:
    def line(name: str, cells: list[Tried], joined: bool = True) -> Series:
        cells = sorted(cells, key=lambda cell: cell.bytes_per_token)
        sizes = tuple(cell.bytes_per_token for cell in cells)
        return Series(name, sizes, tuple(cell.speed for cell in cells), joined)

    good = [cell for cell in found.cells if passes(cell, found.full, bar)]
    front = [cell for cell in good if not any(_cheaper_and_faster(other, cell) for other in good)]
    lines = [line("not to be bettered within the bar", front)]
    if others := [cell for cell in found.cells if cell not in front]:
        lines.append(line("others", others, joined=False))
    return Plot("Speed by bytes of a held token", "bytes a token", "tokens/s", "tokens/s", tuple(lines))


def _cheaper_and_faster(one: Tried, other: Tried) -> bool:
    return one is not other and one.bytes_per_token <= other.bytes_per_token and one.speed >= other.speed


def _says(found: Tuned, bar: float) -> Iterator[str]:
    full = found.full
    yield (
        f"Held against {full.setting.name}: {full.bytes_per_token:.0f} B a token, {full.speed:.0f} tokens/s, "
        f"{full.share:.2%} right."
    )
    if found.chosen is None:
        best = max((cell for cell in found.cells if cell.setting.knobs), key=lambda cell: cell.share, default=None)
        near = f"; the nearest is {best.setting.name} with {best.share:.2%}" if best else ""
        yield f"No setting loses at most {bar * 100:g} points of the right tokens{near}."
        return
    cell = found.chosen
    words = " ".join(f"--set {name}={value}" for name, value in cell.setting.engine_knobs.items())
    yield f"Proposed: --block-tokens {cell.setting.block_tokens} {words}"
    yield (
        f"Its price: {cell.bytes_per_token / full.bytes_per_token:.2f} of the bytes, {cell.speed / full.speed:.2f} "
        f"times the speed of decode, {(cell.share - full.share) * 100:+.2f} ± {cell.error * 100:.2f} points of right "
        f"tokens ({cell.checked:.0f} checked)."
    )


def _warns(found: Tuned, bar: float) -> Iterator[str]:
    if found.chosen is not None and not surely(found.chosen, found.full, bar):
        yield (
            f"{found.chosen.checked:.0f} checked tokens do not tell {bar * 100:g} points for sure "
            f"(± {found.chosen.error * 100:.2f}): --steps more, before it is relied on."
        )
    if found.chosen is not None and found.chosen.speed < found.full.speed:
        yield "No setting within the bar decodes faster than the full cache: this one saves memory only."
