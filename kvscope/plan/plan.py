"""One request's KV cache, layer by layer, and how many such requests fit."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from kvscope.errors import UsageError
from kvscope.plan import model as room
from kvscope.plan.config import ModelConfig
from kvscope.plan.forms import KvForms
from kvscope.plan.formulas import Estimate, estimates, plain_bytes

LENGTHS = (2 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 1 << 20)


@dataclass(frozen=True, slots=True)
class LayerPlan:
    """What one layer holds for one request."""

    layer: int
    kind: str
    growing_bytes: int
    fixed_bytes: int

    @property
    def bytes(self) -> int:
        return self.growing_bytes + self.fixed_bytes


@dataclass(frozen=True, slots=True)
class Point:
    """One length: what a request really takes, and what the plain formula says."""

    context: int
    bytes_per_request: int
    plain_bytes: int

    @property
    def coefficient(self) -> float:
        """The share of the plain formula that is really held."""
        return self.bytes_per_request / self.plain_bytes


@dataclass(frozen=True, slots=True)
class Plan:
    """Bytes for ``users`` requests of ``context`` tokens each; ``memory_bytes`` is what is left for KV, if known."""

    model: str
    context: int
    users: int
    layers: tuple[LayerPlan, ...]
    estimates: tuple[Estimate, ...]
    points: tuple[Point, ...]
    memory_bytes: int | None = None
    mix_bytes: float | None = None
    """Mean bytes of a request over a mix of lengths, where one was given."""

    @property
    def bytes_per_request(self) -> int:
        return sum(layer.bytes for layer in self.layers)

    @property
    def fixed_bytes(self) -> int:
        """What a request costs before its first token: windows reserved whole, states."""
        return sum(layer.fixed_bytes for layer in self.layers)

    @property
    def bytes_per_token(self) -> int:
        """The mean over this context, fixed part included."""
        return round(self.bytes_per_request / self.context)

    @property
    def bytes_total(self) -> int:
        return self.bytes_per_request * self.users

    @property
    def by_kind(self) -> dict[str, tuple[int, int]]:
        """Layers and bytes of each kind, in the order in which they come."""
        count = Counter(layer.kind for layer in self.layers)
        return {
            kind: (layers, sum(layer.bytes for layer in self.layers if layer.kind == kind))
            for kind, layers in count.items()
        }

    def fits(self, bytes_per_request: int) -> int | None:
        """How many requests of that size fit into the memory, or None when it is not known."""
        if self.memory_bytes is None or bytes_per_request == 0:
            return None
        return self.memory_bytes // bytes_per_request


def held_bytes(config: ModelConfig, context: int, forms: KvForms) -> int:
    """Bytes one request of ``context`` tokens holds in all layers."""
    return room.geometry(config).held(context, forms).total_bytes


def make_plan(config: ModelConfig, context: int, users: int, forms: KvForms, memory_bytes: int | None = None) -> Plan:
    """Count every layer of ``config``; UsageError for a size that is none or a config that leaves something open."""
    if context < 1 or users < 1:
        raise UsageError(f"--context {context} --users {users}: expected at least 1 of each")
    found = room.geometry(config)
    layers = []
    for at, layer in enumerate(found.counted()):
        one = room.held(layer, context, forms, 1, found.dtype)
        layers.append(LayerPlan(at, layer.kind, one.growing_bytes, one.fixed_bytes))
    points = tuple(
        Point(length, held_bytes(config, length, forms), plain_bytes(config, length, forms))
        for length in sorted({*LENGTHS, context})
    )
    said = estimates(config, context, forms)
    name = config.model_type or "unnamed model"
    return Plan(name, context, users, tuple(layers), said, points, memory_bytes)
