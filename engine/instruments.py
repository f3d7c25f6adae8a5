"""Fills the flight recorder from the engine's state, once a step. Nothing here runs when probes are off.

A table says each metric's name and what it is read from: columns and values follow from the same line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import add
from typing import TYPE_CHECKING, TypeVar

from engine.forms import HOT
from engine.quality import COUNTED, Quality
from probes.openmetrics import Histogram
from probes.recorder import Recorder, step_columns

if TYPE_CHECKING:
    from engine.admission._base import Room
    from engine.cache import KVCache
    from engine.devices._base import Landed, Traffics
    from engine.host_tier import HostCounts
    from engine.llm import Engine
    from engine.request import Request
    from engine.residency import Residency
    from engine.scheduler import Counts, Plan

    T = TypeVar("T")
    Table = Mapping[str, Callable[[T], float]]


@dataclass(slots=True)
class Step:
    """What one step did: seconds of it all, of prefill and of the host, tokens prefilled, requests that decoded."""

    seconds: float
    prefill_s: float
    host_s: float
    prefilled: int
    decoded: int
    landed: Landed


@dataclass(slots=True)
class Held:
    """The pool at one time: bytes resident and, of them, beside keys and values; tokens held; room for more."""

    engine: Engine
    cache: KVCache
    resident: float
    overhead: int
    tokens: int
    room: Room

    @property
    def kept_share(self) -> float:
        return self.engine.knobs.kept_share if self.engine.residency.policy.SPARSE else 1.0

    @property
    def link_limit(self) -> float:
        tier = self.engine.residency.tier
        return tier.link_mb_s * 1e6 if tier is not None else 0.0


def _part(phase: str) -> Callable[[Step], float]:
    return lambda step: step.landed.parts.get(phase, 0.0)


SPENT: Table[Step] = {
    "time.step": lambda step: step.seconds,
    "time.decode": lambda step: step.seconds - step.prefill_s,
    "time.decode_timed": lambda step: step.seconds - step.prefill_s if step.landed.timed else 0.0,
    "time.prefill": lambda step: step.prefill_s,
    "prefill.decompress_time": lambda step: step.landed.prefill_decompress,
    "time.host": lambda step: step.host_s,
    "time.linear": _part("linear"),
    "time.sample": _part("sample"),
    "tier.transfer_time": _part("transfer"),
    "sparse.index_time": _part("select"),
    "time.gather": _part("gather"),
    "time.attend": _part("attend"),
    "decompress.time": _part("decompress"),
    "batch.steps": lambda _: 1,
    "batch.decode_steps": lambda step: bool(step.decoded),
    "batch.mixed_steps": lambda step: bool(step.decoded and step.prefilled),
    "tokens.prefilled": lambda step: step.prefilled,
}
"""What every step adds to."""
READ: Table[Traffics] = {
    "sparse.entries_read": lambda read: sum(read.read) / len(read.read),
    "sparse.entries_total": lambda read: sum(read.total) / len(read.total),
    "tier.hot_accesses": lambda read: sum(read.hot),
    "tier.cold_accesses": lambda read: sum(read.cold),
}
LAYER_READ: Mapping[str, Callable[[Traffics], Sequence[float]]] = {
    "sparse.layer_entries_read": lambda read: read.read,
    "sparse.layer_entries_total": lambda read: read.total,
    "tier.layer_hot_accesses": lambda read: read.hot,
    "tier.layer_cold_accesses": lambda read: read.cold,
}
COUNTS: Table[Counts] = {
    "prefix.queries": lambda counts: counts.prefix_queries,
    "prefix.hits": lambda counts: counts.prefix_hits,
    "tokens.prompt": lambda counts: counts.prefix_queries,
    "tokens.recomputed": lambda counts: counts.recomputed,
    "sched.preemptions": lambda counts: counts.preemptions,
    "sched.swaps": lambda counts: counts.swaps,
    "sched.kv_bound_steps": lambda counts: counts.kv_bound,
    "sched.cap_bound_steps": lambda counts: counts.cap_bound,
    "sched.budget_bound_steps": lambda counts: counts.budget_bound,
    "sched.audits": lambda counts: counts.audits,
}
WORK: Table[Engine] = {
    "tokens.generated": lambda engine: engine.tokens_generated,
    "sched.running": lambda engine: len(engine.scheduler.running),
    "sched.waiting": lambda engine: len(engine.scheduler.waiting),
    "sched.deferred": lambda engine: engine.scheduler.deferred,
    "sched.max_running": lambda engine: engine.knobs.max_running,
    "sched.swapped": lambda engine: engine.scheduler.swapped,
    "compile.events": lambda engine: engine.compiles[0],
    "compile.time": lambda engine: engine.compiles[1],
    "requests.cancelled": lambda engine: engine.cancelled,
    "quality.tokens_checked": lambda engine: engine.tokens_checked,
    "quality.tokens_right": lambda engine: engine.tokens_right,
    "quality.later_tokens_checked": lambda engine: engine.later_checked,
    "quality.later_tokens_right": lambda engine: engine.later_right,
}
PRECISION: Table[Residency] = {
    "precision.promotions": lambda residency: residency.promotions,
    "precision.demotions": lambda residency: residency.demotions,
    "precision.refusals": lambda residency: residency.refused,
    "precision.bytes_in": lambda residency: residency.bytes_in,
    "precision.bytes_out": lambda residency: residency.bytes_out,
    "precision.promote_time": lambda residency: residency.promote_s,
    "precision.demote_time": lambda residency: residency.demote_s,
}
LINK: Table[HostCounts] = {
    "tier.bytes_in": lambda link: link.bytes_in,
    "tier.bytes_out": lambda link: link.bytes_out,
    "tier.load_time": lambda link: link.load_s,
    "tier.store_time": lambda link: link.store_s,
    "tier.blocks_in": lambda link: link.fetches + link.prefetches,
    "tier.blocks_out": lambda link: link.offloads,
    "tier.refetches": lambda link: link.refetches,
    "tier.failures": lambda link: link.failures,
    "tier.prefetches": lambda link: link.prefetches,
    "tier.prefetch_hits": lambda link: link.prefetch_hits,
    "tier.stall_time": lambda link: link.stall_s,
}
HELD: Table[Held] = {
    "kv.resident_bytes": lambda held: held.resident,
    "kv.overhead_bytes": lambda held: held.overhead,
    "kv.reserved_bytes": lambda held: held.room.pool_bytes,
    "kv.assumed_bytes": lambda held: held.engine.scheduler.admission.assumed_bytes(held.room, held.tokens),
    "kv.bytes_per_token_assumed": lambda held: held.engine.scheduler.admission.bytes_per_token(held.room),
    "kv.bytes_per_token_measured": lambda held: held.room.measured_bytes,
    "kv.usage_ratio": lambda held: held.cache.arena.held_bytes / held.room.pool_bytes,
    "kv.capacity_tokens": lambda held: held.room.pool_bytes / held.room.full_bytes,
    "kv.used_tokens": lambda held: held.tokens,
    "kv.block_size": lambda held: held.cache.geometry.block_tokens,
    "kv.free_bytes": lambda held: held.cache.arena.pool_bytes - held.cache.arena.live_bytes,
    "kv.stranded_bytes": lambda held: held.cache.arena.unusable_bytes(HOT),
    "kv.unusable_failures": lambda held: held.engine.scheduler.holdings.fragmented,
    "kv.used_blocks": lambda held: held.cache.blocks.live,
    "kv.capacity_blocks": lambda held: held.room.total_blocks,
    "sparse.kept_share_target": lambda held: held.kept_share,
    "precision.repromotions": lambda held: held.engine.promoter.repromotions,
    "cache.evictions": lambda held: held.engine.residency.evictions + held.engine.scheduler.holdings.evictions,
    "tier.used_bytes": lambda held: held.cache.host.live_bytes if held.cache.host is not None else 0,
    "tier.capacity_bytes": lambda held: held.cache.host.pool_bytes if held.cache.host is not None else 0,
    "tier.link_limit": lambda held: held.link_limit,
}
"""What the pool holds, what is free of it, and how much of that nobody could use for new tokens."""
SELDOM = (
    *("time.idle", "requests.finished", "config.kv_bits", "kv.entries", "kv.largest_free_run_bytes"),
    *("engine.config_epoch", "batch.tokens_per_step", "batch.context_tokens", "prefix.reusable"),
)
METRICS = (*COUNTED, *SELDOM, *HELD, *PRECISION, *LINK, *COUNTS, *WORK, *SPENT, *READ)
LAYER_METRICS = (*LAYER_READ, "kv.bytes_per_layer", "kv.hot_entries", "kv.cold_entries")
"""In this order what every step writes follows each other, COUNTS to LAYER_READ: it is written at once."""
REQUEST_COLUMNS = (
    *("t", "latency.ttft", "latency.tpot", "latency.e2e", "sched.queue_time", "latency.prefill_time"),
    *("latency.decode_time", "request.tokens_in", "request.tokens_out", "request.preemptions", "request.prefix_hits"),
    "request.kv_bytes",
)
MEMORY_EVERY = 7
"""Steps between two readings of the pool, which changes by a block a request meanwhile. Answers often end after an even
number of steps: an odd one sees all their phases."""
RUN_EVERY, ENTRIES_EVERY = 3, 9
"""Readings of the pool between two searches for its longest free run, and two counts of its entries by form."""


def columns(layers: int) -> list[str]:
    """Columns of this engine's step rows."""
    return step_columns(METRICS, LAYER_METRICS, layers)


class Instruments:
    """Writes one row a step and one a finished request through ``recorder``; ``histograms`` feed the metrics page."""

    def __init__(self, recorder: Recorder, histograms: Mapping[str, Histogram]) -> None:
        self.recorder, self.histograms = recorder, histograms
        names = recorder.columns
        every_step = names[names.index(next(iter(COUNTS))) : names.index("kv.bytes_per_layer[0]")]
        self._put_step, self._put_held = recorder.setter(*every_step), recorder.setter(*HELD, *PRECISION, *LINK)
        self._sums = [0.0] * (len(every_step) - len(COUNTS) - len(WORK))
        self._nothing_read = [0.0] * (len(self._sums) - len(SPENT))
        self._steps = 0

    def step(self, engine: Engine, plan: Plan, landed: Landed, step_s: float) -> None:
        """Commit the row of the step that just ended."""
        requests, prefilled = plan.decode, sum([end - start for _, start, end in plan.prefill])
        # The host works beside the device: what it adds to a step is what the device did not fill. Where nobody
        # decodes, no token waits for the host: the whole step is prefill.
        host_s = max(0.0, step_s - landed.prefill - landed.decode) if requests or not prefilled else 0.0
        prefill_s = landed.prefill if requests or not prefilled else step_s
        step = Step(step_s, prefill_s, host_s, prefilled, len(requests), landed)
        spent = [of(step) for of in SPENT.values()]
        if landed.traffic is None:
            spent += self._nothing_read
        else:
            spent += [of(landed.traffic) for of in READ.values()]
            for by_layer in LAYER_READ.values():
                spent += by_layer(landed.traffic)
        self._sums = list(map(add, self._sums, spent))
        counts = engine.scheduler.counts
        self._put_step(*[of(counts) for of in COUNTS.values()], *[of(engine) for of in WORK.values()], *self._sums)
        put = self.recorder.set
        put("batch.tokens_per_step", prefilled + len(requests))
        if requests:
            put("batch.context_tokens", sum([request.length for request in requests]) / len(requests))
        if engine.knobs.prefix_cache == "on":
            put("prefix.reusable", counts.prefix_reusable)
        if self._steps % MEMORY_EVERY == 0:
            self._memory(engine)
        self._steps += 1
        self.recorder.commit()

    def changed(self) -> None:
        """Settings changed: read the pool at the next step, or a segment begins with what the last one held."""
        self._steps = 0

    def idle(self, seconds: float) -> None:
        """Time passed with nothing to run; written with the next row."""
        self.recorder.add("time.idle", seconds)

    def finished(self, engine: Engine, request: Request) -> None:
        """Write the row of a request that ends (its blocks still held)."""
        assert request.scheduled_s is not None
        assert request.first_token_s is not None
        assert request.last_token_s is not None
        decode_s, count = request.last_token_s - request.first_token_s, len(request.generated)
        own = request.block_table[request.prefix_hits // engine.cache.geometry.block_tokens :]
        row = {
            "t": request.last_token_s,
            "latency.ttft": request.first_token_s - request.arrival_s,
            "latency.tpot": decode_s / (count - 1) if count > 1 else float("nan"),
            "latency.e2e": request.last_token_s - request.arrival_s,
            "sched.queue_time": request.scheduled_s - request.arrival_s,
            "latency.prefill_time": request.first_token_s - request.scheduled_s,
            "latency.decode_time": decode_s,
            "request.tokens_in": len(request.prompt),
            "request.tokens_out": count,
            "request.preemptions": request.preemptions,
            "request.prefix_hits": request.prefix_hits,
            "request.kv_bytes": engine.cache.bytes_of(own),
        }
        self.recorder.add("requests.finished", 1)
        self.recorder.finish_request(row)
        for name, histogram in self.histograms.items():
            histogram.observe(row[name])

    def _memory(self, engine: Engine) -> None:
        if isinstance(engine.judge, Quality):
            engine.judge.put(self.recorder)
        cache, arena, shape = engine.cache, engine.cache.arena, engine.cache.geometry
        (by_layer, overhead), tokens = cache.weighed(), cache.blocks.tokens
        resident = sum(by_layer)
        held = Held(engine, cache, resident, overhead, tokens, engine.scheduler.room(resident, tokens))
        residency, link = engine.residency, engine.residency.host_counts
        self._put_held(
            *[of(held) for of in HELD.values()], *[of(residency) for of in PRECISION.values()],
            *[of(link) for of in LINK.values()],
        )  # fmt: skip
        self.recorder.set_layers("kv.bytes_per_layer", by_layer)
        if self._steps % (MEMORY_EVERY * RUN_EVERY) == 0:
            self.recorder.set("kv.largest_free_run_bytes", arena.longest_run(HOT) * shape.hot_page_bytes)
        if self._steps % (MEMORY_EVERY * ENTRIES_EVERY) == 0:
            self._entries(engine)

    def _entries(self, engine: Engine) -> None:
        entries = engine.cache.entries_by_layer()
        self.recorder.set("kv.entries", (sum(entries.hot) + sum(entries.cold)) / len(entries.hot))
        self.recorder.set_layers("kv.hot_entries", entries.hot)
        self.recorder.set_layers("kv.cold_entries", entries.cold)
        name, shape = engine.knobs.cold_form if any(entries.cold) else "hot", engine.cache.geometry
        form = next(form for form in engine.cache.forms.values() if name == form.NAME)
        bits = 8 * (form.page_bytes(shape) - form.overhead_bytes(shape))
        self.recorder.set("config.kv_bits", bits / (2 * shape.block_tokens * shape.head_dim))
