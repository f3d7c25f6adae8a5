"""Count every request at its own length by a measured curve, with a margin (§4.2): right as far as the curve is."""

from __future__ import annotations

from engine.admission._base import Room
from engine.admission._curve import coefficient


class CurveAdmission:
    """Admits while the estimates of all requests at their full length, each with ``curve_margin`` more, fit the pool.

    A curve that promises too little shows as preemptions, one that promises too much as room nobody uses. What
    requests share (a prefix) is counted for each of them, as an estimate by length must.
    """

    def bytes_per_token(self, room: Room) -> float:
        tokens = sum(room.lengths)
        if not tokens:
            return self._bytes(room, room.max_context) / room.max_context
        return self.assumed_bytes(room, 0) / tokens

    def assumed_bytes(self, room: Room, held_tokens: int) -> float:
        return sum(self._bytes(room, length) for length in room.lengths)

    def admits(self, room: Room, free_blocks: int, new_blocks: int, length: int) -> bool:
        after = self.assumed_bytes(room, 0) + self._bytes(room, length)
        return room.running == 0 or (after <= room.pool_bytes and new_blocks <= free_blocks)

    def _bytes(self, room: Room, length: int) -> float:
        return length * room.full_bytes * coefficient(room.curve, length) * (1.0 + room.curve_margin)


ADMISSION = CurveAdmission()
