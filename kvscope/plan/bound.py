"""The least time that a decode step can take on a GPU, from the bytes that it must read.

    step >= weights(batch) / bandwidth + batch x KV(context) / bandwidth       of one GPU, nothing for communication

A bound, not a prediction: kernels reach 40 to 90 % of it, launches and all-reduce come on top.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kvscope.amounts import amount
from kvscope.devices import Device
from kvscope.plan.engines import Ask

MOST_REQUESTS = 1 << 20


@dataclass(frozen=True, slots=True)
class Bound:
    """A model on a card, spread as asked; ``fits``: requests the pool holds, None where that is not known."""

    ask: Ask
    device: Device
    fits: int | None

    def weight_seconds(self, batch: float) -> float:
        """Time to read the weights of a step of ``batch`` tokens on one GPU, or to multiply by them."""
        weights = self.ask.model.weights
        assert weights is not None
        gpus = self.ask.split.gpus
        read = weights.read_bytes(batch) / gpus / self.device.bandwidth
        worked = 2 * weights.active_parameters * batch / gpus / self.device.bf16
        return max(read, worked)

    def kv_seconds(self, context: int) -> float:
        """Time to read one request's KV, index keys and states on one GPU."""
        found = self.ask.model.read(context, self.ask.forms, self.ask.split.attention, self.ask.drafts)
        return found.total_bytes / self.ask.split.pp / self.device.bandwidth

    def seconds(self, batch: float, context: int) -> float:
        """The bound of one step."""
        each = batch / self.ask.split.dp
        return (self.weight_seconds(batch) + each * self.kv_seconds(context)) * self._stages

    @property
    def _stages(self) -> int:
        """A token passes every pipeline stage, one after another."""
        return self.ask.split.pp

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
