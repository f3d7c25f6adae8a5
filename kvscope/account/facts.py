"""What no metrics page tells and the bound of a step needs: the model's layers and the device's peaks."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvscope.bound import Floor, Load
from kvscope.devices import Device
from kvscope.errors import UsageError
from kvscope.floor import Spread, step_floor

if TYPE_CHECKING:
    from kvscope.plan import Geometry


@dataclass(frozen=True, slots=True)
class Facts:
    """``kv_dtype``: how KV is kept ("auto": as the model computes); ``tp``: ranks that share a step.

    ``sources`` says in words where each came from; it is shown with every figure that rests on them.
    """

    model: Geometry | None = None
    device: Device | None = None
    kv_dtype: str = "auto"
    tp: int = 1
    sources: tuple[str, ...] = ()

    @property
    def lacks_model(self) -> bool:
        return self.model is None

    @property
    def lacks_device(self) -> bool:
        return self.device is None

    @property
    def lacks_weights(self) -> bool:
        return self.model is None or self.model.weights is None

    def read_s(self, read_bytes: float, operations: float) -> float | None:
        """Return the least time of so many bytes and operations; None where the device is not known."""
        if self.device is None:
            return None
        return max(read_bytes / self.device.bandwidth, operations / self.device.flops(16))

    def floor(self, load: Load, kv_dtype: str = "", ranks: int = 0) -> Floor | None:
        """Return the bound of a step; None where model or device is not known, or they do not go together."""
        if self.model is None or self.device is None:
            return None
        spread = Spread.tensor_parallel(ranks or self.tp)
        for name in filter(None, (kv_dtype, self.kv_dtype, "auto")):
            with suppress(UsageError):
                return step_floor(self.model, load, self.device, self.model.forms(name), spread)
        return None


NO_FACTS = Facts()
