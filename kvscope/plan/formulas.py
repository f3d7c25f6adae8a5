"""What rules of thumb would have said, to be held against the layer-by-layer count.

The plain formula, "a quarter of it" as one reads, a measured coefficient with its safety margin, and coefficients by
length. They are examples of the literature, and stand here to show what copying them costs.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvscope.plan.forms import KvForms
from kvscope.plan.model import Geometry

PIECES = ((8 << 10, 0.6), (32 << 10, 0.35))
"""Coefficient below each length, in tokens; above the last one it is ``BEYOND``."""
BEYOND = 0.28


@dataclass(frozen=True, slots=True)
class Estimate:
    """What one formula says a request takes."""

    name: str
    says: str
    bytes_per_request: int


def plain_bytes(model: Geometry, context: int, forms: KvForms) -> int:
    """2 × tokens × layers × KV heads × head size × bytes of a number; 0 where no layer keeps heads."""
    widest = max(model.counted(), key=lambda layer: layer.kv_heads * layer.key_dim)
    row = forms.key.bytes_of(widest.key_dim, widest.kv_heads) + forms.value.bytes_of(widest.key_dim, widest.kv_heads)
    return context * len(model.counted()) * row


def estimates(model: Geometry, context: int, forms: KvForms) -> tuple[Estimate, ...]:
    """Every formula's answer for one request of ``context`` tokens; none where the model keeps no heads."""
    plain = plain_bytes(model, context, forms)
    if not plain:
        return ()
    piece = next((coefficient for below, coefficient in PIECES if context < below), BEYOND)
    return (
        Estimate("plain", "2 × tokens × layers × KV heads × head size × bytes", plain),
        Estimate("quarter", "a quarter of that, whatever the length", round(plain * 0.25)),
        Estimate("margin", "0.32 of that: 0.28 measured, with a margin", round(plain * 0.32)),
        Estimate("by length", f"{piece} of that at this length: 0.6, 0.35, 0.28 by length", round(plain * piece)),
    )


def curve_estimate(
    pieces: tuple[tuple[int, float], ...], margin: float, model: Geometry, context: int, forms: KvForms
) -> Estimate:
    """What a measured curve (`kvscope bench curve`) says, its margin included."""
    coefficient = next(value for start, value in reversed(pieces) if context >= start) * (1 + margin)
    held = round(plain_bytes(model, context, forms) * coefficient)
    return Estimate("curve", f"{coefficient:.3f} of that: the measured curve at this length, margin included", held)
