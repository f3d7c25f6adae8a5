"""Count what is really held and keep a little room for what runs to grow (§3.1, §4.2)."""

from __future__ import annotations

from engine.admission._base import Room


class Watermark:
    """Admits while the request's own blocks leave ``watermark`` of the pool's blocks free."""

    def bytes_per_token(self, room: Room) -> float:
        return room.measured_bytes

    def assumed_bytes(self, room: Room, held_tokens: int) -> float:
        return held_tokens * room.measured_bytes

    def admits(self, room: Room, free_blocks: int, new_blocks: int) -> bool:
        reserve = 0 if room.running == 0 else round(room.watermark * room.total_blocks)
        return new_blocks + reserve <= free_blocks


ADMISSION = Watermark()
