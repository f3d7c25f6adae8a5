"""What no metrics page tells and the bound of a step needs: the model's layers and the device's peaks."""

from __future__ import annotations

from dataclasses import dataclass

from kvscope.devices import Device
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


NO_FACTS = Facts()
