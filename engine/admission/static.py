"""Reserve the longest context at uncompressed size for every request (§3.1): safe, and blind to compression."""

from __future__ import annotations

from engine.admission._base import Room


class Static:
    """Admits while (running + 1) × longest context × uncompressed bytes per token fits the pool."""

    def bytes_per_token(self, room: Room) -> float:
        return float(room.full_bytes)

    def assumed_bytes(self, room: Room, held_tokens: int) -> float:
        return float(room.running * room.max_context * room.full_bytes)

    def admits(self, room: Room, free_blocks: int, new_blocks: int, length: int) -> bool:
        after = (room.running + 1) * room.max_context * room.full_bytes
        # The first request always runs: a reservation larger than the pool would otherwise never end.
        return room.running == 0 or (after <= room.pool_bytes and new_blocks <= free_blocks)


ADMISSION = Static()
