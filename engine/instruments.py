"""Fills the flight recorder from the engine's state, once a step. Nothing here runs when probes are off."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from engine.forms.hot import CODE as HOT
from engine.quality import COLUMNS as QUALITY
from engine.quality import Quality
from probes.openmetrics import Histogram
from probes.recorder import Recorder, step_columns

if TYPE_CHECKING:
    from engine.decode import DecodeAttend
    from engine.devices._base import Traffics
    from engine.kernels._base import Phases
    from engine.llm import Engine, StepTimes
    from engine.request import Request
    from engine.scheduler import Plan

METRICS = (
    *("time.step", "time.idle", "time.decode", "time.host", "time.linear", "sparse.index_time", "time.gather"),
    *("time.attend", "decompress.time", "tier.transfer_time", "time.sample", "time.prefill", "prefill.decompress_time"),
    *("batch.steps", "batch.decode_steps", "batch.tokens_per_step", "batch.context_tokens"),
    *("tokens.generated", "tokens.prompt", "tokens.prefilled", "tokens.recomputed"),
    *("requests.finished", "requests.cancelled"),
    *(
        "prefix.queries",
        "prefix.hits",
        "prefix.reusable",
        "config.kv_bits",
        "sched.running",
        "sched.waiting",
        "sched.deferred",
        "sched.max_running",
    ),
    *("sched.preemptions", "sched.swaps", "sched.swapped", "sched.kv_bound_steps", "sched.cap_bound_steps"),
    *("sched.budget_bound_steps", "sched.audits", "batch.mixed_steps", "compile.events", "compile.time"),
    *("kv.free_bytes", "kv.stranded_bytes", "kv.largest_free_run_bytes", "kv.unusable_failures"),
    *(
        "kv.used_blocks",
        "kv.capacity_blocks",
        "kv.resident_bytes",
        "kv.overhead_bytes",
        "kv.reserved_bytes",
        "kv.assumed_bytes",
    ),
    *("kv.bytes_per_token_assumed", "kv.bytes_per_token_measured", "kv.usage_ratio", "kv.capacity_tokens"),
    *("kv.used_tokens", "kv.entries", "kv.block_size", "cache.evictions", "sparse.kept_share_target"),
    *("sparse.entries_read", "sparse.entries_total", "tier.hot_accesses", "tier.cold_accesses"),
    *("tier.promotions", "tier.demotions", "tier.bytes_in", "tier.bytes_out", "tier.repromotions", "tier.refusals"),
    *("tier.blocks_in", "tier.blocks_out", "tier.refetches", "tier.failures", "tier.prefetches", "tier.prefetch_hits"),
    *("tier.load_time", "tier.store_time", "tier.stall_time", "tier.used_bytes", "tier.capacity_bytes"),
    *("tier.link_limit", "quality.tokens_checked", "quality.tokens_right"),
    *("quality.later_tokens_checked", "quality.later_tokens_right", "engine.config_epoch"),
    *QUALITY,
)
LAYER_METRICS = (
    *("kv.bytes_per_layer", "kv.hot_entries", "kv.cold_entries", "sparse.layer_entries_read"),
    *("sparse.layer_entries_total", "tier.layer_hot_accesses", "tier.layer_cold_accesses"),
)
REQUEST_COLUMNS = (
    *("t", "latency.ttft", "latency.tpot", "latency.e2e", "sched.queue_time", "latency.prefill_time"),
    *("latency.decode_time", "request.tokens_in", "request.tokens_out", "request.preemptions", "request.prefix_hits"),
    "request.kv_bytes",
)
MEMORY_EVERY = 7
"""Steps between two readings of the pool, which changes by a block a request meanwhile. Answers often end after an even
number of steps: an odd one sees all their phases."""
RUN_EVERY, ENTRIES_EVERY = 3, 9
"""Readings of the pool between two searches for its longest free run, and two counts of its entries by form, which walk
all live pages.
"""
WORK = (
    *("tokens.generated", "tokens.prompt", "tokens.recomputed", "prefix.queries", "prefix.hits"),
    *("sched.running", "sched.waiting", "sched.deferred", "sched.max_running", "sched.preemptions", "sched.swaps"),
    *("sched.swapped", "sched.kv_bound_steps", "sched.cap_bound_steps", "sched.budget_bound_steps", "sched.audits"),
    *("compile.events", "compile.time", "requests.cancelled", "quality.tokens_checked", "quality.tokens_right"),
    *("quality.later_tokens_checked", "quality.later_tokens_right"),
)
MOVES = (
    *("tier.bytes_in", "tier.bytes_out", "tier.load_time", "tier.store_time", "tier.blocks_in", "tier.blocks_out"),
    *("tier.refetches", "tier.failures", "tier.prefetches", "tier.prefetch_hits", "tier.stall_time"),
    *("tier.promotions", "tier.demotions", "tier.refusals", "tier.repromotions", "cache.evictions"),
)


def columns(layers: int) -> list[str]:
    """Columns of this engine's step rows."""
    return step_columns(METRICS, LAYER_METRICS, layers)


class Instruments:
    """Writes one row a step and one a finished request through ``recorder``; ``histograms`` feed the metrics page."""

    def __init__(self, recorder: Recorder, histograms: Mapping[str, Histogram]) -> None:
        self.recorder, self.histograms = recorder, histograms
        self._put_work, self._put_moves = recorder.setter(*WORK), recorder.setter(*MOVES)
        self._steps = 0

    def step(
        self, engine: Engine, plan: Plan, times: StepTimes, phases: Phases, attend: DecodeAttend | Traffics | None
    ) -> None:
        """Commit the row of the step that just ended."""
        self._times(times, phases)
        self._work(engine, plan)
        if self._steps % MEMORY_EVERY == 0:
            self._memory(engine)
        self._steps += 1
        if attend is not None:
            self._traffic(attend)
        self.recorder.commit()

    def idle(self, seconds: float) -> None:
        """Time passed with nothing to run; written with the next row."""
        self.recorder.add("time.idle", seconds)

    def finished(self, engine: Engine, request: Request) -> None:
        """Write the row of a request that ends (its blocks still held)."""
        assert request.scheduled_s is not None
        assert request.first_token_s is not None
        assert request.last_token_s is not None
        decode_s, count = request.last_token_s - request.first_token_s, len(request.generated)
        shape = engine.cache.geometry
        own = len(request.block_table) - len(request.keys)
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
            "request.kv_bytes": own * shape.pages_per_block * shape.hot_page_bytes,
        }
        self.recorder.add("requests.finished", 1)
        self.recorder.finish_request(row)
        for name, histogram in self.histograms.items():
            histogram.observe(row[name])

    def _times(self, times: StepTimes, phases: Phases) -> None:
        add = self.recorder.add
        add("time.step", times.step)
        add("time.decode", times.step - times.prefill)
        add("time.prefill", times.prefill)
        add("prefill.decompress_time", times.prefill_decompress)
        add("time.host", times.host)
        add("time.linear", times.linear)
        add("time.sample", times.sample)
        add("tier.transfer_time", times.transfer + phases.transfer)
        add("sparse.index_time", phases.select)
        add("time.gather", phases.gather)
        add("time.attend", phases.attend)
        add("decompress.time", phases.decompress)

    def _work(self, engine: Engine, plan: Plan) -> None:
        add, put, scheduler = self.recorder.add, self.recorder.set, engine.scheduler
        prefilled = sum(end - start for _, start, end in plan.prefill)
        add("batch.steps", 1)
        add("batch.decode_steps", bool(plan.decode))
        add("batch.mixed_steps", bool(plan.decode and plan.prefill))
        put("batch.tokens_per_step", prefilled + len(plan.decode))
        if plan.decode:
            put("batch.context_tokens", sum(request.length for request in plan.decode) / len(plan.decode))
        add("tokens.prefilled", prefilled)
        counts, waiting = scheduler.counts, scheduler.waiting
        if engine.knobs.prefix_cache == "on":
            put("prefix.reusable", counts.prefix_reusable)
        self._put_work(
            *(engine.tokens_generated, counts.prefix_queries, counts.recomputed, counts.prefix_queries),
            *(counts.prefix_hits, len(scheduler.running), len(waiting), scheduler.deferred, engine.knobs.max_running),
            *(counts.preemptions, counts.swaps, sum([bool(request.block_table) for request in waiting])),
            *(counts.kv_bound, counts.cap_bound, counts.budget_bound, counts.audits, *engine.compiles),
            *(engine.cancelled, engine.tokens_checked, engine.tokens_right, engine.later_checked, engine.later_right),
        )

    def _memory(self, engine: Engine) -> None:
        if isinstance(engine.judge, Quality):
            engine.judge.put(self.recorder)
        put, cache, by_layer = self.recorder.set, engine.cache, engine.cache.resident_bytes_by_layer()
        resident, held = sum(by_layer), cache.blocks.tokens
        room, estimate = engine.scheduler.room(resident), engine.scheduler.admission
        put("kv.resident_bytes", resident)
        put("kv.overhead_bytes", cache.overhead_bytes())
        put("kv.reserved_bytes", room.pool_bytes)
        put("kv.assumed_bytes", estimate.assumed_bytes(room, held))
        put("kv.bytes_per_token_assumed", estimate.bytes_per_token(room))
        put("kv.bytes_per_token_measured", room.measured_bytes)
        put("kv.usage_ratio", cache.arena.held_bytes / room.pool_bytes)
        put("kv.capacity_tokens", room.pool_bytes / room.full_bytes)
        put("kv.used_tokens", held)
        put("kv.block_size", cache.geometry.block_tokens)
        self.recorder.set_layers("kv.bytes_per_layer", by_layer)
        put("sparse.kept_share_target", engine.knobs.kept_share if engine.residency.policy.SPARSE else 1.0)
        self._moves(engine)
        self._room(engine)
        if self._steps % (MEMORY_EVERY * ENTRIES_EVERY) == 0:
            self._entries(engine)

    def _room(self, engine: Engine) -> None:
        """What is free, and how much of it nobody could use for new tokens."""
        put, cache, shape = self.recorder.set, engine.cache, engine.cache.geometry
        block_bytes = shape.hot_page_bytes * shape.pages_per_block
        put("kv.free_bytes", cache.arena.pool_bytes - cache.arena.live_bytes)
        put("kv.stranded_bytes", cache.arena.unusable_bytes(HOT))
        if self._steps % (MEMORY_EVERY * RUN_EVERY) == 0:
            put("kv.largest_free_run_bytes", cache.arena.longest_run(HOT) * shape.hot_page_bytes)
        put("kv.unusable_failures", engine.scheduler.holdings.fragmented)
        put("kv.used_blocks", cache.blocks.live)
        put("kv.capacity_blocks", cache.arena.pool_bytes // block_bytes)

    def _moves(self, engine: Engine) -> None:
        """Between full precision, cold form and host memory: bytes and seconds of both together, pages of the host."""
        residency, put = engine.residency, self.recorder.set
        counts, tier, host = residency.host_counts, residency.tier, residency.cache.host
        self._put_moves(
            *(residency.bytes_in + counts.bytes_in, residency.bytes_out + counts.bytes_out),
            *(residency.promote_s + counts.load_s, residency.demote_s + counts.store_s),
            *(counts.fetches + counts.prefetches, counts.offloads, counts.refetches, counts.failures),
            *(counts.prefetches, counts.prefetch_hits, counts.stall_s, residency.promotions, residency.demotions),
            *(residency.refused, engine.promoter.repromotions),
            residency.evictions + engine.scheduler.holdings.evictions,
        )
        put("tier.used_bytes", host.live_bytes if host is not None else 0)
        put("tier.capacity_bytes", host.pool_bytes if host is not None else 0)
        put("tier.link_limit", tier.link_mb_s * 1e6 if tier is not None else 0)

    def _entries(self, engine: Engine) -> None:
        entries = engine.cache.entries_by_layer()
        self.recorder.set("kv.entries", (sum(entries.hot) + sum(entries.cold)) / len(entries.hot))
        self.recorder.set_layers("kv.hot_entries", entries.hot)
        self.recorder.set_layers("kv.cold_entries", entries.cold)
        name, shape = engine.knobs.cold_form if any(entries.cold) else "hot", engine.cache.geometry
        form = next(form for form in engine.cache.forms.values() if name == form.NAME)
        bits = 8 * (form.page_bytes(shape) - form.overhead_bytes(shape))
        self.recorder.set("config.kv_bits", bits / (2 * shape.block_tokens * shape.head_dim))

    def _traffic(self, attend: DecodeAttend | Traffics) -> None:
        add, layers = self.recorder.add, len(attend.hot)
        add("sparse.entries_read", sum(attend.read) / layers)
        add("sparse.entries_total", sum(attend.total) / layers)
        add("tier.hot_accesses", sum(attend.hot))
        add("tier.cold_accesses", sum(attend.cold))
        self.recorder.add_layers("sparse.layer_entries_read", attend.read)
        self.recorder.add_layers("sparse.layer_entries_total", attend.total)
        self.recorder.add_layers("tier.layer_hot_accesses", attend.hot)
        self.recorder.add_layers("tier.layer_cold_accesses", attend.cold)
