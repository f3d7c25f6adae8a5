"""Fills the flight recorder from the engine's state, once a step. Nothing here runs when probes are off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import add
from typing import TYPE_CHECKING

from engine.forms import HOT
from engine.quality import COLUMNS as QUALITY
from engine.quality import Quality
from probes.openmetrics import Histogram
from probes.recorder import Recorder, step_columns

if TYPE_CHECKING:
    from engine.devices._base import Landed, Traffics
    from engine.llm import Engine
    from engine.request import Request
    from engine.scheduler import Plan

SPENT = (
    *("time.step", "time.decode", "time.prefill", "prefill.decompress_time", "time.host", "time.linear"),
    *("time.sample", "tier.transfer_time", "sparse.index_time", "time.gather", "time.attend", "decompress.time"),
    *("batch.steps", "batch.decode_steps", "batch.mixed_steps", "tokens.prefilled"),
)
"""What every step adds to."""
READ = ("sparse.entries_read", "sparse.entries_total", "tier.hot_accesses", "tier.cold_accesses")
LAYER_READ = (
    *("sparse.layer_entries_read", "sparse.layer_entries_total", "tier.layer_hot_accesses"),
    "tier.layer_cold_accesses",
)
WORK = (
    *(
        "batch.tokens_per_step",
        "batch.context_tokens",
        "prefix.reusable",
        "tokens.generated",
        "tokens.prompt",
        "tokens.recomputed",
        "prefix.queries",
    ),
    *("prefix.hits", "sched.running", "sched.waiting", "sched.deferred", "sched.max_running", "sched.preemptions"),
    *("sched.swaps", "sched.swapped", "sched.kv_bound_steps", "sched.cap_bound_steps", "sched.budget_bound_steps"),
    *("sched.audits", "compile.events", "compile.time", "requests.cancelled", "quality.tokens_checked"),
    *("quality.tokens_right", "quality.later_tokens_checked", "quality.later_tokens_right"),
)
HELD = (
    *("kv.resident_bytes", "kv.overhead_bytes", "kv.reserved_bytes", "kv.assumed_bytes"),
    *("kv.bytes_per_token_assumed", "kv.bytes_per_token_measured", "kv.usage_ratio", "kv.capacity_tokens"),
    *("kv.used_tokens", "kv.block_size", "sparse.kept_share_target", "kv.free_bytes", "kv.stranded_bytes"),
    *("kv.unusable_failures", "kv.used_blocks", "kv.capacity_blocks"),
)
MOVES = (
    *("tier.bytes_in", "tier.bytes_out", "tier.load_time", "tier.store_time", "tier.blocks_in", "tier.blocks_out"),
    *("tier.refetches", "tier.failures", "tier.prefetches", "tier.prefetch_hits", "tier.stall_time"),
    *("tier.promotions", "tier.demotions", "tier.refusals", "tier.repromotions", "cache.evictions"),
    *("tier.used_bytes", "tier.capacity_bytes", "tier.link_limit"),
)
SELDOM = (
    *("time.idle", "requests.finished", "config.kv_bits", "kv.entries", "kv.largest_free_run_bytes"),
    "engine.config_epoch",
)
METRICS = (*QUALITY, *SELDOM, *HELD, *MOVES, *WORK, *SPENT, *READ)
LAYER_METRICS = (*LAYER_READ, "kv.bytes_per_layer", "kv.hot_entries", "kv.cold_entries")
"""In this order what every step writes follows each other, WORK to LAYER_READ: it is written at once."""
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


def columns(layers: int) -> list[str]:
    """Columns of this engine's step rows."""
    return step_columns(METRICS, LAYER_METRICS, layers)


class Instruments:
    """Writes one row a step and one a finished request through ``recorder``; ``histograms`` feed the metrics page."""

    def __init__(self, recorder: Recorder, histograms: Mapping[str, Histogram]) -> None:
        self.recorder, self.histograms = recorder, histograms
        names = recorder.columns
        every_step = names[names.index(WORK[0]) : names.index("kv.bytes_per_layer[0]")]
        self._put_step, self._put_held = recorder.setter(*every_step), recorder.setter(*HELD)
        self._put_moves = recorder.setter(*MOVES)
        self._sums = [0.0] * (len(every_step) - len(WORK))
        self._nothing_read = (0,) * (len(self._sums) - len(SPENT))
        self._steps = self._reusable = 0
        self._context = 0.0

    def step(self, engine: Engine, plan: Plan, landed: Landed, step_s: float) -> None:
        """Commit the row of the step that just ended."""
        prefilled = sum([end - start for _, start, end in plan.prefill])
        decode = plan.decode
        # Where nobody decodes, no token waits for the host: the whole step is prefill.
        alone = prefilled and not decode
        # The host works beside the device: what it adds to a step is what the device did not fill.
        host_s = max(0.0, step_s - landed.prefill - landed.decode)
        prefill_s, host_s = (step_s, 0.0) if alone else (landed.prefill, host_s)
        part = landed.parts.get
        spent = (
            *(step_s, step_s - prefill_s, prefill_s, landed.prefill_decompress, host_s),
            *[part(name, 0.0) for name in ("linear", "sample", "transfer", "select", "gather", "attend", "decompress")],
            *(1, bool(decode), bool(decode and prefilled), prefilled),
        )
        read = self._nothing_read if landed.traffic is None else _traffic(landed.traffic)
        self._sums = list(map(add, self._sums, (*spent, *read)))
        self._put_step(prefilled + len(decode), *self._work(engine, decode), *self._sums)
        if self._steps % MEMORY_EVERY == 0:
            self._memory(engine)
        self._steps += 1
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

    def _work(self, engine: Engine, decode: Sequence[Request]) -> Sequence[float]:
        """Values of WORK from the second on."""
        scheduler, counts, waiting = engine.scheduler, engine.scheduler.counts, engine.scheduler.waiting
        if decode:
            self._context = sum([request.length for request in decode]) / len(decode)
        if engine.knobs.prefix_cache == "on":
            self._reusable = counts.prefix_reusable
        # Only a swap leaves a request that waits its blocks.
        swapped = sum([bool(request.block_table) for request in waiting]) if counts.swaps else 0
        return (
            *(self._context, self._reusable, engine.tokens_generated, counts.prefix_queries, counts.recomputed),
            *(counts.prefix_queries, counts.prefix_hits, len(scheduler.running), len(waiting), scheduler.deferred),
            *(engine.knobs.max_running, counts.preemptions, counts.swaps, swapped, counts.kv_bound),
            *(counts.cap_bound, counts.budget_bound, counts.audits, *engine.compiles, engine.cancelled),
            *(engine.tokens_checked, engine.tokens_right, engine.later_checked, engine.later_right),
        )

    def _memory(self, engine: Engine) -> None:
        """What the pool holds, what is free of it, and how much of that nobody could use for new tokens."""
        if isinstance(engine.judge, Quality):
            engine.judge.put(self.recorder)
        cache, arena, shape = engine.cache, engine.cache.arena, engine.cache.geometry
        (by_layer, overhead), held = cache.weighed(), cache.blocks.tokens
        resident, live = sum(by_layer), arena.live_bytes
        room, estimate = engine.scheduler.room(resident, held), engine.scheduler.admission
        self._put_held(
            *(resident, overhead, room.pool_bytes, estimate.assumed_bytes(room, held), estimate.bytes_per_token(room)),
            *(room.measured_bytes, arena.held_bytes / room.pool_bytes, room.pool_bytes / room.full_bytes, held),
            *(shape.block_tokens, engine.knobs.kept_share if engine.residency.policy.SPARSE else 1.0),
            *(arena.pool_bytes - live, arena.unusable_bytes(HOT), engine.scheduler.holdings.fragmented),
            *(cache.blocks.live, room.total_blocks),
        )
        self.recorder.set_layers("kv.bytes_per_layer", by_layer)
        self._moves(engine)
        if self._steps % (MEMORY_EVERY * RUN_EVERY) == 0:
            self.recorder.set("kv.largest_free_run_bytes", arena.longest_run(HOT) * shape.hot_page_bytes)
        if self._steps % (MEMORY_EVERY * ENTRIES_EVERY) == 0:
            self._entries(engine)

    def _moves(self, engine: Engine) -> None:
        """Between full precision, cold form and host memory: bytes and seconds of both together, pages of the host."""
        residency = engine.residency
        counts, tier, host = residency.host_counts, residency.tier, residency.cache.host
        self._put_moves(
            *(residency.bytes_in + counts.bytes_in, residency.bytes_out + counts.bytes_out),
            *(residency.promote_s + counts.load_s, residency.demote_s + counts.store_s),
            *(counts.fetches + counts.prefetches, counts.offloads, counts.refetches, counts.failures),
            *(counts.prefetches, counts.prefetch_hits, counts.stall_s, residency.promotions, residency.demotions),
            *(residency.refused, engine.promoter.repromotions),
            residency.evictions + engine.scheduler.holdings.evictions,
            *((host.live_bytes, host.pool_bytes) if host is not None else (0, 0)),
            tier.link_mb_s * 1e6 if tier is not None else 0,
        )

    def _entries(self, engine: Engine) -> None:
        entries = engine.cache.entries_by_layer()
        self.recorder.set("kv.entries", (sum(entries.hot) + sum(entries.cold)) / len(entries.hot))
        self.recorder.set_layers("kv.hot_entries", entries.hot)
        self.recorder.set_layers("kv.cold_entries", entries.cold)
        name, shape = engine.knobs.cold_form if any(entries.cold) else "hot", engine.cache.geometry
        form = next(form for form in engine.cache.forms.values() if name == form.NAME)
        bits = 8 * (form.page_bytes(shape) - form.overhead_bytes(shape))
        self.recorder.set("config.kv_bits", bits / (2 * shape.block_tokens * shape.head_dim))


def _traffic(attend: Traffics) -> Sequence[float]:
    """Values of READ and, layer by layer, of LAYER_READ."""
    read, total, hot, cold = attend.read, attend.total, attend.hot, attend.cold
    return (sum(read) / len(read), sum(total) / len(total), sum(hot), sum(cold), *read, *total, *hot, *cold)
