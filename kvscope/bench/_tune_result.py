"""What tuning found, as a result: every setting with its price, the front, and one proposal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kvscope.bench._tune_front import Cell as Tried
from kvscope.bench._tune_front import Tuned, passes, surely
from kvscope.bench._tune_grid import AXES
from kvscope.bench.result.quantity import Quantity
from kvscope.bench.result.result import Cell, Plot, Result, Series, Table


def make(found: Tuned, bar: float, tags: Mapping[str, str], settings: Mapping[str, Any]) -> Result:
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
