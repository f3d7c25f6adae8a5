"""Count what is really held and keep room for what runs to grow (§3.1, §4.2)."""

from __future__ import annotations

from engine.admission._base import Room

MOST = 0.10
"""Of the pool: growth further off than that is met when it comes, by preemption if need be."""


class Watermark:
    """Admits while the request's own blocks leave room for the expected growth of what runs.

    The growth is what the running requests still lack, at uncompressed size since new tokens are stored so; it is
    taken as ``watermark`` of the pool at least and a tenth of it at most.
    """

    def bytes_per_token(self, room: Room) -> float:
        return room.measured_bytes

    def assumed_bytes(self, room: Room, held_tokens: int) -> float:
        return held_tokens * room.measured_bytes

    def admits(self, room: Room, free_blocks: int, new_blocks: int, length: int) -> bool:
        return new_blocks + self._reserve(room) <= free_blocks

    def _reserve(self, room: Room) -> int:
        if room.running == 0:
            return 0
        growth = room.growth_tokens / room.block_tokens
        least, most = (round(share * room.total_blocks) for share in (room.watermark, max(room.watermark, MOST)))
        return round(min(max(growth, least), most))


ADMISSION = Watermark()
