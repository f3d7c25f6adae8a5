"""What admission may look at, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from engine.admission._curve import Curve


@dataclass(frozen=True, slots=True)
class Room:
    """The pool as admission sees it. Bytes are device bytes; a token's ``full_bytes`` are uncompressed, all layers.

    ``lengths`` are the tokens every running request will have when it ends; ``growth_tokens`` what they still lack.
    """

    pool_bytes: int
    total_blocks: int
    block_tokens: int
    full_bytes: int
    measured_bytes: float
    max_context: int
    lengths: tuple[int, ...]
    growth_tokens: int
    watermark: float
    curve: Curve
    curve_margin: float

    @property
    def running(self) -> int:
        return len(self.lengths)


class Admission(Protocol):
    """The one place where a memory estimate is made."""

    def bytes_per_token(self, room: Room) -> float:
        """KV bytes this strategy counts for one token."""
        ...

    def assumed_bytes(self, room: Room, held_tokens: int) -> float:
        """KV bytes it counts for everything running; ``held_tokens`` are tokens stored now."""
        ...

    def admits(self, room: Room, free_blocks: int, new_blocks: int, length: int) -> bool:
        """Whether one more request may run that ends with ``length`` tokens and now needs ``new_blocks`` of its own,
        of ``free_blocks`` to be had.
        """
        ...
