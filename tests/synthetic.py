"""An engine in a steady state, as numbers: what a flight recorder would say of it. For tests and synthetic recordings.

What it is used for is in ``tests/situations.py``; the same seed gives the same stream.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from kvscope.sources.source import Mark
from kvscope.store import Store
from probes.sample import Labels, Sample

PARTS = {
    "host": "time.host",
    "linear": "time.linear",
    "index": "sparse.index_time",
    "gather": "time.gather",
    "attend": "time.attend",
    "decompress": "decompress.time",
    "transfer": "tier.transfer_time",
    "sample": "time.sample",
}
DENSE_SHARES = {"host": 0.08, "linear": 0.25, "attend": 0.62, "sample": 0.02}
LAYERS = 3


@dataclass(frozen=True)
class State:
    """Rates, gauges and shares of one steady state; ``drop`` names metrics this engine does not report."""

    tokens_per_s: float = 400.0
    steps_per_s: float = 50.0
    prefill: float = 0.15
    shares: dict[str, float] = field(default_factory=lambda: dict(DENSE_SHARES))
    running: float = 8
    waiting: float = 6
    cap: float = 8
    resident: float = 2.0e8
    reserved: float = 4.0e8
    assumed: float = 2.1e8
    token_assumed: float = 6144.0
    token_measured: float = 6144.0
    context: float = 4000.0
    kept: float = 1.0
    hit: float = 1.0
    hot: float = 1.0
    switches_per_token: float = 0.0
    preemptions_per_s: float = 0.0
    prefill_decompress: float = 0.0
    prefix_hit: float = 0.5
    prompt: float = 900.0
    ttft: float = 0.40
    queue: float = 0.02
    tpot: float = 0.020
    right: float = 0.98
    layer_hits: tuple[float, ...] = ()
    drop: tuple[str, ...] = ()

    def but(self, **changes: object) -> State:
        """Return a copy with some numbers changed."""
        return replace(self, **changes)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Stretch:
    """A marked segment in one state."""

    name: str
    state: State
    tags: dict[str, str] = field(default_factory=dict)


TAGS = {
    "engine": "kvscope",
    "version": "1",
    "model": "recall-5m",
    "device": "cpu",
    "workload": "recall 4096->64",
    "offered_load": "14 clients, closed loop",
    "cap": "8",
}


def stream(
    stretches: Sequence[Stretch], *, rows: int = 22, every_s: float = 1.0, noise: float = 0.02, seed: int = 0
) -> list[Sample | Mark]:
    """Return marks and samples in time order, ``rows`` rows per stretch."""
    rng = random.Random(seed)
    totals: dict[str, float] = {}
    items: list[Sample | Mark] = []
    t = 1000.0
    for stretch in stretches:
        items.append(Mark(stretch.name, t, {**TAGS, **stretch.tags}))
        for _ in range(rows):
            t += every_s
            items += _row(stretch.state, t, every_s, totals, _Noise(rng, noise))
        t += every_s / 2
    return items


class _Noise:
    def __init__(self, rng: random.Random, size: float) -> None:
        self._rng, self._size = rng, size

    def __call__(self, value: float) -> float:
        return value * max(0.0, 1 + self._rng.gauss(0, self._size))


def _row(state: State, t: float, dt: float, totals: dict[str, float], noise: _Noise) -> list[Sample]:
    grown = _increases(state, dt, noise)
    for metric, by in grown.items():
        totals[metric] = totals.get(metric, 0.0) + by
    values = {metric: totals[metric] for metric in grown} | _gauges(state, noise) | _request(state, noise)
    return [_sample(name, value, t) for name, value in values.items() if name.split("{")[0] not in state.drop]


def _sample(name: str, value: float, t: float) -> Sample:
    metric, _, label = name.partition("{")
    labels: Labels = (("layer", label.removeprefix("layer=").rstrip("}")),) if label else ()
    return Sample(metric, float(f"{value:.6g}"), t, labels)


def _increases(state: State, dt: float, noise: _Noise) -> dict[str, float]:
    tokens = noise(state.tokens_per_s) * dt
    step = dt * 0.98
    decode = step * (1 - state.prefill)
    read = tokens * state.context
    switches = noise(state.switches_per_token) * tokens
    grown = {
        "time.step": step,
        "time.prefill": step * state.prefill,
        "prefill.decompress_time": noise(state.prefill_decompress) * step * state.prefill,
        "batch.steps": noise(state.steps_per_s) * dt,
        "tokens.generated": tokens,
        "tokens.prefilled": noise(state.prompt) * dt * (1 - state.prefix_hit),
        "prefix.queries": state.prompt * dt,
        "prefix.hits": noise(state.prefix_hit) * state.prompt * dt,
        "sched.preemptions": noise(state.preemptions_per_s) * dt,
        "sparse.entries_total": read,
        "sparse.entries_read": noise(state.hit) * read,
        "tier.hot_accesses": state.hot * read / 64,
        "tier.cold_accesses": noise(1 - state.hot) * read / 64,
        "precision.promotions": switches / 2,
        "precision.demotions": switches / 2,
    }
    grown |= {metric: noise(state.shares.get(part, 0.0)) * decode for part, metric in PARTS.items()}
    for layer, hit in enumerate(state.layer_hits or (state.hit,) * LAYERS):
        grown[f"sparse.layer_entries_total{{layer={layer}}}"] = read
        grown[f"sparse.layer_entries_read{{layer={layer}}}"] = noise(hit) * read
    return grown


def _gauges(state: State, noise: _Noise) -> dict[str, float]:
    return {
        "sched.running": state.running,
        "sched.waiting": round(noise(state.waiting)),
        "sched.max_running": state.cap,
        "sched.deferred": 0.0,
        "kv.resident_bytes": noise(state.resident),
        "kv.reserved_bytes": state.reserved,
        "kv.assumed_bytes": noise(state.assumed),
        "kv.usage_ratio": noise(state.resident) / state.reserved,
        "kv.bytes_per_token_assumed": state.token_assumed,
        "kv.bytes_per_token_measured": noise(state.token_measured),
        "batch.context_tokens": noise(state.context),
        "sparse.kept_share_target": state.kept,
    }


def _request(state: State, noise: _Noise) -> dict[str, float]:
    return {
        "latency.ttft": noise(state.ttft),
        "latency.tpot": noise(state.tpot),
        "sched.queue_time": noise(state.queue),
        "request.tokens_in": noise(state.context),
    }


def store_of(items: Iterable[Sample | Mark]) -> Store:
    """Return a store that holds a stream."""
    store = Store()
    for item in items:
        if isinstance(item, Sample):
            store.add([item])
        else:
            store.mark(item)
    return store
