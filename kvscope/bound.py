"""The bound of a step as figures: what it computes, the least time of each part, and who can say it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Floor:
    """Seconds that one decode step takes at least, by part; ``flops_s`` is its arithmetic alone, at peak."""

    weights_s: float
    kv_s: tuple[float, float]
    index_s: float
    flops_s: float
    unsplit_s: float = 0.0
    """Reads that the engine counts and nobody can tell whose they are."""

    @property
    def least_s(self) -> float:
        """All parts, every resident token read once."""
        return self.weights_s + self.kv_s[0] + self.index_s + self.unsplit_s

    @property
    def most_s(self) -> float:
        """All parts, every request reading its own context."""
        return self.weights_s + self.kv_s[1] + self.index_s + self.unsplit_s


@dataclass(frozen=True, slots=True)
class Load:
    """What one step computes: ``requests`` of ``context`` tokens each, ``tokens`` in all (more with drafts to check).

    ``resident``: tokens the pool holds for them, shared ones once; None where nobody tells.
    """

    requests: float
    context: float
    resident: float | None = None
    tokens: float | None = None

    @property
    def sharing(self) -> float:
        """How often a resident token counts among the contexts: 1 where nothing is shared."""
        held = self.requests * self.context
        return max(1.0, held / self.resident) if self.resident else 1.0


class Physics(Protocol):
    """What is known of model and device, enough of it or not."""

    @property
    def lacks_model(self) -> bool:
        """Whether the model's layers are not known."""

    @property
    def lacks_device(self) -> bool:
        """Whether the device's peaks are not known."""

    @property
    def lacks_weights(self) -> bool:
        """Whether nobody knows what the weights weigh: then their part is not in the bound."""

    def read_s(self, read_bytes: float, operations: float) -> float | None:
        """Return the least time of so many bytes and operations; None where the device is not known."""

    def floor(self, load: Load, kv_dtype: str = "", ranks: int = 0) -> Floor | None:
        """Return the bound of a step; ``kv_dtype`` and ``ranks`` as a segment says them, empty where it does not."""
