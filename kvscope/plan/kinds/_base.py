"""What a layer holds for one request."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes that grow with the context, and bytes every request costs from its first token on (windows, states)."""

    growing_bytes: int
    fixed_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        return self.growing_bytes + self.fixed_bytes
