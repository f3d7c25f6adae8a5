"""The least time a decode step can take: bytes it must read over the memory's bandwidth, and its arithmetic.

    weights   max(bytes of weights / bandwidth, 2 · active parameters · tokens / peak FLOP/s)
    KV        max(requests · bytes one request reads / bandwidth, attention's operations / peak FLOP/s)
    index     requests · bytes of index keys / bandwidth

Kernels run one after another, so the parts add up. Requests that share a prefix may read its blocks once or each for
itself: KV is a span, from each resident token once to each request its own. The result is a bound, not a prediction:
62 public measurements lie at 23 to 88 % of it. Communication between ranks, launches and the host are not in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvscope.bound import Floor, Load
from kvscope.devices import Device

if TYPE_CHECKING:
    from kvscope.plan import Geometry
    from kvscope.plan.forms import KvForms

__all__ = ["ALONE", "Floor", "Load", "Spread", "step_floor"]


@dataclass(frozen=True, slots=True)
class Spread:
    """Over how many devices a step is spread: ``tp`` share a request's attention, ``weights`` hold a part of them.

    ``replicas`` groups attend requests of their own (data-parallel attention). A step passes pipeline stages one after
    another: ``weights`` are the ranks of one stage.
    """

    tp: int = 1
    weights: int = 1
    replicas: int = 1

    @classmethod
    def tensor_parallel(cls, ranks: int) -> Spread:
        """Return ranks that share everything."""
        return cls(ranks, ranks)


ALONE = Spread()


def step_floor(
    model: Geometry,
    load: Load,
    device: Device,
    forms: KvForms | None = None,
    spread: Spread = ALONE,
    weights_read: float = 0.0,
    drafts: bool = False,
) -> Floor:
    """Return the bound of one step; ``weights_read`` bytes, over all ranks, overrule the model's.

    Without weights in the config (and none given) their part is 0, and the bound holds all the more.
    """
    forms, context = forms or model.forms(), max(1, round(load.context))
    tokens = load.requests if load.tokens is None else load.tokens
    requests = load.requests / spread.replicas
    one, peak = model.read(context, forms, spread.tp, drafts), device.flops(16)
    read = weights_read or (model.weights.read_bytes(tokens) if model.weights else 0.0)
    operations = 2.0 * model.weights.active_parameters * tokens / peak / spread.weights if model.weights else 0.0
    # Tokens of one request that are checked together read its context once.
    attention_s = tokens / spread.replicas * model.attention_flops(context, drafts) / peak / spread.tp
    kv_s = requests * (one.kv_bytes + one.state_bytes) / device.bandwidth
    return Floor(
        weights_s=max(read / spread.weights / device.bandwidth, operations),
        kv_s=(max(kv_s / load.sharing, attention_s), max(kv_s, attention_s)),
        index_s=requests * one.index_bytes / device.bandwidth,
        flops_s=operations + attention_s,
    )
