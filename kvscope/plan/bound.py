"""The least time a decode step can take on a GPU, by the bytes it must read; ``kvscope.floor`` has the formula.

A bound, not a prediction: kernels reach 40 to 90 % of it, launches and all-reduce come on top. What rules of thumb
would have said stands beside the layer-by-layer count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvscope.amounts import amount
from kvscope.devices import Device
from kvscope.errors import UsageError
from kvscope.floor import Floor, Load, Spread, step_floor
from kvscope.plan.engines import Ask
from kvscope.plan.forms import KvForms
from kvscope.plan.model import Geometry
from probes import border

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


def curve_of(path: Path) -> tuple[tuple[tuple[int, float], ...], float]:
    """Read a measured curve: (tokens, coefficient) that begin at 0 and grow, and its margin. UsageError."""
    try:
        content = border.mapping(border.document(border.read_file(path, 1 << 20), "the file"), "the file")
        points = [border.items(point, "a point", 2) for point in border.items(content.get("curve"), "curve", 10_000)]
        pieces = tuple(
            (border.whole(start, "a length in tokens"), border.number(value, "a coefficient", 0.0, 4.0))
            for start, value in points
        )
        margin = border.number(content.get("margin", 0.0), "margin", 0.0, 4.0)
        starts = [start for start, _ in pieces]
        if not starts or starts[0] != 0 or starts != sorted(set(starts)):
            first = starts[0] if starts else "nothing"
            raise border.Refused(f"begins at {first}, expected 0 tokens and then longer ones")
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or error
        raise UsageError(f"--curve {path}: {said}; expected a file of kvscope bench curve --curve-file") from None
    return pieces, margin


def curve_estimate(
    pieces: tuple[tuple[int, float], ...], margin: float, model: Geometry, context: int, forms: KvForms
) -> Estimate:
    """What a measured curve (`kvscope bench curve`) says, its margin included."""
    coefficient = next(value for start, value in reversed(pieces) if context >= start) * (1 + margin)
    held = round(plain_bytes(model, context, forms) * coefficient)
    return Estimate("curve", f"{coefficient:.3f} of that: the measured curve at this length, margin included", held)


MOST_REQUESTS = 1 << 20


@dataclass(frozen=True, slots=True)
class Bound:
    """A model on a card, spread as asked; ``fits``: requests the pool holds, None where that is not known."""

    ask: Ask
    device: Device
    fits: int | None

    def floor(self, batch: float, context: int) -> Floor:
        """The bound of one step of ``batch`` requests, by part; a token passes every pipeline stage."""
        split = self.ask.split
        spread = Spread(split.attention, max(1, split.gpus // split.pp), split.dp)
        return step_floor(
            self.ask.model, Load(batch, context), self.device, self.ask.forms, spread, drafts=self.ask.drafts
        )

    def weight_seconds(self, batch: float) -> float:
        """Time to read the weights of a step of ``batch`` tokens, or to multiply by them."""
        return self.floor(batch, 1).weights_s

    def kv_seconds(self, context: int) -> float:
        """Time to read one request's KV, index keys and states, where one request is all."""
        found = self.floor(self.ask.split.dp, context)
        return found.kv_s[1] + found.index_s

    def seconds(self, batch: float, context: int) -> float:
        """The bound of one step."""
        return self.floor(batch, context).most_s

    def overtakes(self, context: int) -> int | None:
        """Requests at which KV takes longer to read than weights; None where that never happens."""
        kv = self.kv_seconds(context) / self.ask.split.dp
        low, high = 1, MOST_REQUESTS
        if kv * high <= self.weight_seconds(high):
            return None
        while low < high:
            middle = (low + high) // 2
            if kv * middle > self.weight_seconds(middle):
                high = middle
            else:
                low = middle + 1
        return low

    def lines(self) -> Iterator[str]:
        """What the bound says, in the first lines of a report."""
        context = self.ask.context
        one = self.seconds(1, context)
        parts = f"weights {amount(self.weight_seconds(1), 's')}, KV {amount(self.kv_seconds(context), 's')}"
        yield f"  {'a token':<12} cannot be faster than {amount(one, 's')} on {self.device.name} ({parts})"
        if self.fits and self.fits > 1:
            many = self.seconds(self.fits, context)
            rate = f"{self.fits / many:.0f} tokens/s at most"
            yield f"  {'':<12} {amount(many, 's')} with the {self.fits} requests that fit: {rate}"
        over = self.overtakes(context)
        where = f"KV overtakes weights at {over} requests of {context} tokens" if over else "KV never overtakes weights"
        yield f"  {'':<12} {where}"

    def explained(self) -> Iterator[str]:
        """The figures behind the bound."""
        read = self.ask.model.read(self.ask.context, self.ask.forms, self.ask.split.attention, self.ask.drafts)
        weights = self.ask.model.weights
        assert weights is not None
        each = amount(weights.read_bytes(1) / self.ask.split.gpus, "B")
        yield f"bound: {each} of weights and {amount(read.total_bytes, 'B')} of KV a request, read by one GPU"
        yield f"  at {self.device.bandwidth / 1e12:g} TB/s ({self.device.source}); communication is not in it"

    def as_json(self) -> dict[str, Any]:
        """Seconds at one request and at what fits, and where KV overtakes weights."""
        context = self.ask.context
        return {
            "gpu": self.device.name,
            "weights_s": self.weight_seconds(1),
            "kv_s_per_request": self.kv_seconds(context),
            "step_s": self.seconds(1, context),
            "step_s_at_fit": self.seconds(self.fits, context) if self.fits else None,
            "kv_overtakes_weights_at": self.overtakes(context),
        }


def bound_of(ask: Ask, device: Device | None, fits: float | None) -> Bound | None:
    """Return the bound, or None where no card is named or the weights are not known."""
    if device is None or ask.model.weights is None or not ask.model.weights.total_bytes:
        return None
    return Bound(ask, device, None if fits is None else int(fits))
