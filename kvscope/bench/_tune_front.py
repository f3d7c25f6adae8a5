"""What settings cost and bring, which of them no other beats, and which one to take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

from kvscope.bench._tune_grid import Setting

AIMS = ("balanced", "memory", "speed")


@dataclass(frozen=True, slots=True)
class Cell:
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
    def from_json(cls, found: dict[str, Any]) -> Cell:
        """Read one back; KeyError, TypeError or ValueError when it is none."""
        knobs = tuple((str(name), str(value)) for name, value in found["knobs"])
        numbers = (float(found[name]) for name in ("bytes_per_token", "token_s", "right", "checked"))
        return cls(Setting(int(found["block_tokens"]), knobs), *numbers)


@dataclass(frozen=True, slots=True)
class Tuned:
    """``full``: the fastest full cache; ``front``: cells that no other beats in bytes, speed and right tokens at once;
    ``chosen``: the one to take, None where no compressed cell passes the bar.
    """

    full: Cell
    cells: tuple[Cell, ...]
    front: tuple[Cell, ...]
    chosen: Cell | None


def tune(cells: Sequence[Cell], bar: float, aim: str) -> Tuned:
    """Choose by ``aim`` among the cells that lose at most ``bar`` of the right tokens; needs one full cell."""
    full = max((cell for cell in cells if not cell.setting.knobs), key=lambda cell: cell.speed)
    packed = [cell for cell in cells if cell.setting.knobs]
    good = [cell for cell in packed if passes(cell, full, bar)]
    front = tuple(cell for cell in cells if not any(_beats(other, cell) for other in cells))
    return Tuned(full, tuple(cells), front, max(good, key=_worth(aim, full), default=None))


def passes(cell: Cell, full: Cell, bar: float) -> bool:
    """Whether it loses no more than the bar, as measured."""
    return cell.share >= full.share - bar


def surely(cell: Cell, full: Cell, bar: float) -> bool:
    """Whether it passes at the bad end of its interval too."""
    return cell.share - cell.error >= full.share - bar


def _worth(aim: str, full: Cell) -> Callable[[Cell], tuple[float, ...]]:
    if aim == "memory":
        return lambda cell: (float(cell.speed >= full.speed), -cell.bytes_per_token)
    if aim == "speed":
        return lambda cell: (cell.speed, -cell.bytes_per_token)
    return lambda cell: (cell.speed / cell.bytes_per_token,)


def _beats(one: Cell, other: Cell) -> bool:
    better = (other.bytes_per_token - one.bytes_per_token, one.speed - other.speed, one.share - other.share)
    return min(better) >= 0 and max(better) > 0
