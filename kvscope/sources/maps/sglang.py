"""SGLang's page (``--enable-metrics``), 0.4.6 to 0.5.23: pools of hybrid models and HiCache; read in its source.

Counters of logical tokens repeat on every tensor-parallel rank (``copies``); byte counters are each rank's own share.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kvscope.sources.mapping import Derived, Entry, json_number, number
from kvscope.sources.maps._sglang_tiers import TIERS

ENGINE = "sglang"
ROLE = "engine"
EXPECTS = "names starting with sglang:"
IDENTITY = {"model_name": "model"}
VERSION_PATH = ""
FLAGS = ("max-running-requests",)
SIDE_PATH = "/v1/loads"
SIDE_FLAG = ""
"""Releases before 0.5.2x have no such document."""

_GIB = float(1 << 30)
RANKS = ("tp_rank", "pp_rank", "moe_ep_rank")
_REALTIME = "sglang:realtime_tokens_total"
_EFFECTIVE = "sglang:prefill_effective_tokens_total"
_NOT_USED = "tokens of cached prefixes nobody uses count as free: a warm cache can read low"
_STAGES = (
    "recv_requests",
    "process_input_requests",
    "get_next_batch_to_run",
    "process_queue",
    "run_batch",
    "process_batch_result",
    "other",
)
"""Stages of the scheduler's loop that are work: all but ``idle``."""
_HITS = (("device_hit", "device"), ("host_hit", "host"), ("storage_hit", "disk"))
_SOURCES = (("device", "device"), ("host", "host"), ("storage", "disk"))


def _tokens(name: str, metric: str, **where: str) -> Entry:
    return Entry(name, metric, "counter", "tokens", copies=RANKS, where=tuple(where.items()), since="0.5.9")


WORK = (
    Entry(_REALTIME, "tokens.generated", "counter", "tokens", copies=RANKS, where=(("mode", "decode"),), since="0.5.9"),
    Entry(
        "sglang:generation_tokens_total",
        "tokens.generated",
        "counter",
        "tokens",
        unless=_REALTIME,
        caveat="added when a request ends: the rate of a short look is uneven",
    ),
    Entry("sglang:prompt_tokens_total", "tokens.prompt", "counter", "tokens", caveat="added when a request ends"),
    Entry(
        _EFFECTIVE, "tokens.prefilled", "counter", "tokens", copies=RANKS, where=(("mode", "input"),), since="0.5.19"
    ),
    Entry(_EFFECTIVE, "prefix.queries", "counter", "tokens", copies=RANKS, since="0.5.19"),
    *(
        Entry(_EFFECTIVE, "prefix.hits", "counter", "tokens", copies=RANKS, where=(("mode", mode),), since="0.5.19")
        for mode, _ in _HITS
    ),
    *(
        Entry(
            _EFFECTIVE,
            "prefix.hits_by_tier",
            "counter",
            "tokens",
            copies=RANKS,
            where=(("mode", mode),),
            labels=(("tier", tier),),
            since="0.5.19",
        )
        for mode, tier in _HITS
    ),
    Entry("sglang:cached_tokens_total", "prefix.hits", "counter", "tokens", unless=_EFFECTIVE),
    *(
        Entry(
            "sglang:cached_tokens_total",
            "prefix.hits_by_tier",
            "counter",
            "tokens",
            unless=_EFFECTIVE,
            where=(("cache_source", source),),
            labels=(("tier", tier),),
            caveat="absent until the first hit of a tier",
        )
        for source, tier in _SOURCES
    ),
    # Before the modes were told, every prompt token was looked up.
    Entry("sglang:prompt_tokens_total", "prefix.queries", "counter", "tokens", unless=_EFFECTIVE),
    Entry("sglang:num_requests_total", "requests.finished", "counter", "requests"),
    Entry("sglang:num_aborted_requests_total", "requests.errors", "counter", "requests", since="0.5.5"),
    Entry(
        "sglang:forward_execution_seconds_total",
        "gpu.busy_time",
        "counter",
        "s",
        copies=RANKS,
        since="0.5.11",
        condition="SGLANG_ENABLE_METRICS_DEVICE_TIMER",
    ),
    Entry(
        "sglang:gpu_execution_seconds_total",
        "gpu.busy_time",
        "counter",
        "s",
        copies=RANKS,
        since="0.5.9",
        until="0.5.9",
        condition="SGLANG_ENABLE_METRICS_DEVICE_TIMER",
    ),
    # Wall time of the scheduler's loop, each instant under one stage.
    Entry("sglang:scheduler_idle_seconds_total", "time.idle", "counter", "s", copies=RANKS, since="0.5.23"),
    *(
        Entry(
            "sglang:scheduler_stage_seconds_total",
            "time.step",
            "counter",
            "s",
            copies=RANKS,
            where=(("category", stage),),
            since="0.5.23",
            caveat="scheduling beside a step that runs on the device counts too",
        )
        for stage in _STAGES
    ),
    Entry("sglang:spec_verify_calls_total", "spec.drafts", "counter", "rounds", since="0.5.15"),
)

SCHEDULER = (
    Entry("sglang:num_running_reqs", "sched.running", "gauge", "requests", copies=RANKS),
    Entry("sglang:num_queue_reqs", "sched.waiting", "gauge", "requests", copies=RANKS),
    Entry(
        "sglang:num_paused_reqs",
        "sched.paused",
        "gauge",
        "requests",
        copies=RANKS,
        since="0.5.5",
        caveat="by a change of weights, not for want of memory",
    ),
    Entry(
        "sglang:num_retracted_requests_total",
        "sched.preemptions",
        "counter",
        "events",
        copies=RANKS,
        since="0.5.9",
        caveat="a retracted request is what others call preempted; the gauge num_retracted_reqs is per report",
    ),
    Entry(
        "sglang:num_grammar_queue_reqs",
        "sched.deferred",
        "gauge",
        "requests",
        copies=RANKS,
        since="0.5.23",
        caveat="for a grammar that is being compiled",
    ),
    Entry(
        "sglang:dp_attention_sync_wait_seconds_sum",
        "rank.wait_time",
        "counter",
        "s",
        copies=RANKS,
        rename=(("dp_rank", "rank"),),
        since="0.5.23",
        condition="data-parallel attention",
        caveat="the sum of a histogram",
    ),
    _tokens("sglang:num_retracted_input_tokens_total", "sched.preempted_tokens"),
    _tokens("sglang:num_retracted_output_tokens_total", "sched.preempted_tokens"),
)

MEMORY = (
    Entry(
        "sglang:full_token_usage", "kv.usage_ratio", "gauge", "ratio", combine="mean", since="0.5.11", caveat=_NOT_USED
    ),
    Entry(
        "sglang:token_usage",
        "kv.usage_ratio",
        "gauge",
        "ratio",
        combine="mean",
        unless="sglang:full_token_usage",
        caveat="a ratio of two decimals, the largest over the pools; " + _NOT_USED,
    ),
    Entry("sglang:kv_used_tokens", "kv.used_tokens", "gauge", "tokens", copies=RANKS, since="0.5.11"),
    Entry(
        "sglang:num_used_tokens",
        "kv.used_tokens",
        "gauge",
        "tokens",
        copies=RANKS,
        unless="sglang:kv_used_tokens",
        caveat="the larger of two pools, not their sum",
    ),
    Entry("sglang:kv_available_tokens", "kv.free_tokens", "gauge", "tokens", copies=RANKS, since="0.5.11"),
    Entry("sglang:kv_evictable_tokens", "kv.evictable_tokens", "gauge", "tokens", copies=RANKS, since="0.5.11"),
    Entry("sglang:max_total_num_tokens", "kv.capacity_tokens", "gauge", "tokens", copies=RANKS, since="0.5.9"),
    Entry("sglang:page_size", "kv.block_size", "gauge", "tokens", combine="max", since="0.5.11"),
    Entry("sglang:cache_config_info", "", "info", since="0.5.9", until="0.5.9"),
    Entry(
        "sglang:kv_cache_memory_usage_gb",
        "kv.reserved_bytes",
        "gauge",
        "GiB",
        scale=float(1 << 30),
        since="0.5.19",
        caveat="GiB, in spite of its name; each rank holds its own share",
    ),
    # The pools of a hybrid model: full attention, sliding window, recurrent state.
    Entry(
        "sglang:swa_token_usage",
        "kv.pool_usage_ratio",
        "gauge",
        "ratio",
        combine="mean",
        labels=(("pool", "window"),),
        since="0.5.5",
    ),
    Entry(
        "sglang:mamba_usage",
        "kv.pool_usage_ratio",
        "gauge",
        "ratio",
        combine="mean",
        labels=(("pool", "state"),),
        since="0.5.5",
    ),
    *(
        Entry(
            f"sglang:{prefix}_{word}_tokens",
            f"kv.pool_{word}_tokens",
            "gauge",
            "tokens",
            copies=RANKS,
            labels=(("pool", pool),),
            since="0.5.15",
        )
        for prefix, pool in (("swa", "window"), ("mamba", "state"))
        for word in ("used", "evictable")
    ),
    Entry(
        "sglang:max_total_num_tokens_swa",
        "kv.pool_capacity_tokens",
        "gauge",
        "tokens",
        copies=RANKS,
        labels=(("pool", "window"),),
        since="0.5.19",
    ),
)

LATENCY = (
    Entry("sglang:time_to_first_token_seconds", "latency.ttft", "histogram", "s"),
    Entry(
        "sglang:inter_token_latency_seconds",
        "latency.itl",
        "histogram",
        "s",
        caveat="divided by the tokens of a step, unlike vLLM's",
    ),
    Entry("sglang:request_time_per_output_token_seconds", "latency.tpot", "histogram", "s", since="0.5.23"),
    Entry("sglang:time_per_output_token_seconds", "latency.tpot", "histogram", "s", until="0.4.5"),
    Entry("sglang:e2e_request_latency_seconds", "latency.e2e", "histogram", "s"),
    Entry("sglang:queue_time_seconds", "sched.queue_time", "histogram", "s", copies=RANKS, since="0.5.5"),
    Entry(
        "sglang:per_stage_req_latency_seconds",
        "latency.prefill_time",
        "histogram",
        "s",
        copies=RANKS,
        where=(("stage", "prefill_forward"),),
        since="0.5.5",
    ),
    Entry(
        "sglang:per_stage_req_latency_seconds",
        "latency.decode_time",
        "histogram",
        "s",
        copies=RANKS,
        where=(("stage", "decode_loop"),),
        since="0.5.5",
    ),
    Entry("sglang:prompt_tokens_histogram", "request.tokens_in", "histogram", "tokens", since="0.5.5"),
    Entry("sglang:generation_tokens_histogram", "request.tokens_out", "histogram", "tokens", since="0.5.5"),
    Entry("sglang:uncached_prompt_tokens_histogram", "request.tokens_computed", "histogram", "tokens", since="0.5.15"),
    Entry("process_start_time_seconds", "process.start_time", "gauge", "s", combine="max"),
)

SETTINGS = (
    Entry("sglang:context_len", "config.max_context", "gauge", "tokens", combine="max", since="0.5.19"),
    Entry("sglang:weight_memory_usage_gb", "config.weights_bytes", "gauge", "GiB", _GIB, "max", since="0.5.19"),
    Entry("sglang:graph_memory_usage_gb", "config.graph_bytes", "gauge", "GiB", _GIB, "max", since="0.5.19"),
    Entry("sglang:is_cuda_graph", "config.graphs", "gauge", "flag", combine="max", since="0.5.5"),
    Entry(
        "sglang:hicache_backup_dropped_tokens_total",
        "cache.dropped_tokens",
        "counter",
        "tokens",
        copies=RANKS,
        since="0.5.19",
    ),
)

MAP = WORK + SCHEDULER + MEMORY + LATENCY + TIERS + SETTINGS


def detect(names: Collection[str]) -> bool:
    return any(name.startswith("sglang:") for name in names)


def derive(
    infos: Mapping[str, Sequence[Mapping[str, str]]], values: Mapping[str, float], flags: Mapping[str, str]
) -> Derived:
    """Take page size and pool from ``cache_config_info`` (0.5.9), the limit from the command line.

    Bytes are of the whole pool by tokens: what running requests hold is the used share of it.
    """
    found: dict[str, float] = {}
    tags: dict[str, str] = {}
    if limit := number(flags, "max-running-requests"):
        found["sched.max_running"], tags["cap"] = limit, f"{limit:g}"
    for config in infos.get("sglang:cache_config_info", ())[:1]:
        page, pages = number(config, "page_size"), number(config, "num_pages")
        if page:
            found["kv.block_size"] = page
        if page and pages and "kv.capacity_tokens" not in values:
            found["kv.capacity_tokens"] = page * pages
    pool, capacity = values.get("kv.reserved_bytes"), values.get("kv.capacity_tokens")
    if pool and capacity:
        found["kv.bytes_per_token_assumed"] = pool / capacity
        if (used := values.get("kv.used_tokens")) is not None:
            found["kv.resident_bytes"] = used * pool / capacity
    return Derived(found, tags)


def read_side(document: object) -> dict[str, float]:
    """Read ``/v1/loads``: an entry a data-parallel rank, with sums over its steps (scheduler.py of 0.5.23).

    ``decode_moments``: [steps, Σ requests, Σ µs, Σ requests², Σ requests x µs, Σ tokens] of decode steps that followed
    one upon the other, by launch cadence.
    """
    loads = document.get("loads") if isinstance(document, dict) else None
    found: dict[str, float] = {}
    for load in loads if isinstance(loads, list) else ():
        if not isinstance(load, dict):
            continue
        moments = load.get("decode_moments")
        known = [json_number(one) for one in moments[:3]] if isinstance(moments, list) else []
        steps, requests, micros = [*known, None, None, None][:3]
        told = {
            "time.prefill": (json_number(load.get("total_prefill_busy_us")), 1e-6),
            "tokens.prefilled": (json_number(load.get("total_prefill_uncached_tokens")), 1.0),
            "sched.max_running": (json_number(load.get("max_running_requests")), 1.0),
            "latency.step.count": (steps, 1.0),
            "latency.step.sum": (micros, 1e-6),
            "batch.requests_per_step.count": (steps, 1.0),
            "batch.requests_per_step.sum": (requests, 1.0),
        }
        for metric, (value, scale) in told.items():
            if value is not None and value >= 0:
                found[metric] = found.get(metric, 0.0) + value * scale
    return found
