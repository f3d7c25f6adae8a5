"""The settings that tuning tries: block size and importance together, and what else the price depends on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

from kvscope.errors import UsageError

AXES = ("kept_share", "hot_share", "evict_share", "cold_form")


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
