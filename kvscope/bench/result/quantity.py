"""One number a benchmark measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Better = Literal["higher", "lower", ""]


@dataclass(frozen=True, slots=True)
class Quantity:
    """``value ± error`` (half of an interval of about 95 %); ``error`` None: measured once, so it cannot be known."""

    name: str
    value: float
    unit: str
    error: float | None = None
    better: Better = ""

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "error": self.error,
            "better": self.better,
        }

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Quantity:
        """Read one back; KeyError or ValueError when it is none."""
        error = found.get("error")
        return cls(
            str(found["name"]),
            float(found["value"]),
            str(found["unit"]),
            None if error is None else float(error),
            found.get("better", ""),
        )
