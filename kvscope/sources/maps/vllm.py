"""vLLM's page, 0.6 (V0) to 0.33 (V1); read in the sources and on pages of a running 0.32."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kvscope.sources.mapping import Derived, Entry, number
from kvscope.sources.maps._vllm_connectors import CONNECTORS
from kvscope.sources.maps.router import is_router

__all__ = ["ENGINE", "EXPECTS", "FLAGS", "IDENTITY", "MAP", "ROLE", "VERSION_PATH", "derive", "detect"]

ENGINE = "vllm"
ROLE = "engine"
EXPECTS = "names starting with vllm:"
IDENTITY = {"model_name": "model"}
VERSION_PATH = "/version"
FLAGS = ("max-num-seqs",)

_SPEC = "speculative decoding"
_RESIDENCY = "--kv-cache-metrics"
_EVICTED_ONLY = "recorded at eviction only, for a sample of the blocks: a block that stays hot leaves no trace"

_SOURCES = (
    ("device", "device"),
    ("host", "host"),
    ("disk", "disk"),
    ("p2p", "remote"),
    ("external_unspecified", "remote"),
)

MAP = (
    # Work done.
    Entry("vllm:generation_tokens_total", "tokens.generated", "counter", "tokens"),
    Entry("vllm:prompt_tokens_total", "tokens.prompt", "counter", "tokens", caveat="cached tokens count too"),
    Entry(
        "vllm:prompt_tokens_by_source_total",
        "tokens.prefilled",
        "counter",
        "tokens",
        where=(("source", "local_compute"),),
        since="0.20",
    ),
    Entry(
        "vllm:request_success_total",
        "requests.finished",
        "counter",
        "requests",
        caveat="every end counts, aborts and errors too; rejected requests never get here",
    ),
    Entry(
        "vllm:request_success_total", "requests.errors", "counter", "requests", where=(("finished_reason", "error"),)
    ),
    Entry(
        "vllm:estimated_read_bytes_per_gpu_total",
        "batch.read_bytes",
        "counter",
        "B",
        condition="--enable-mfu-metrics",
        caveat="0 without it",
    ),
    Entry(
        "vllm:estimated_flops_per_gpu_total",
        "batch.operations",
        "counter",
        "FLOP",
        condition="--enable-mfu-metrics",
        caveat="0 without it",
    ),
    Entry("vllm:iteration_tokens_total_count", "batch.steps", "counter", "steps", caveat="the count of a histogram"),
    Entry(
        "vllm:iteration_tokens_total",
        "batch.tokens_per_step",
        "histogram",
        "tokens",
        caveat="a histogram in spite of its name",
    ),
    Entry(
        "vllm:prefix_cache_queries_total",
        "prefix.queries",
        "counter",
        "tokens",
        since="0.11",
        caveat="recomputation after a preemption is left out",
    ),
    Entry("vllm:prefix_cache_hits_total", "prefix.hits", "counter", "tokens", since="0.11"),
    Entry(
        "vllm:gpu_prefix_cache_queries_total",
        "prefix.queries",
        "counter",
        "tokens",
        unless="vllm:prefix_cache_queries_total",
        since="0.8",
        until="0.11",
        caveat="blocks, not tokens, in the first V1 releases",
    ),
    Entry(
        "vllm:gpu_prefix_cache_hits_total",
        "prefix.hits",
        "counter",
        "tokens",
        unless="vllm:prefix_cache_hits_total",
        since="0.8",
        until="0.11",
        caveat="blocks, not tokens, in the first V1 releases",
    ),
    # The scheduler.
    Entry(
        "vllm:num_requests_running",
        "sched.running",
        "gauge",
        "requests",
        caveat="the state at the end of a step; frozen during a long one",
    ),
    Entry("vllm:num_requests_waiting", "sched.waiting", "gauge", "requests"),
    Entry(
        "vllm:num_requests_waiting_by_reason",
        "sched.deferred",
        "gauge",
        "requests",
        where=(("reason", "deferred"),),
        since="0.20",
    ),
    Entry("vllm:num_preemptions_total", "sched.preemptions", "counter", "events"),
    Entry("vllm:num_requests_swapped", "sched.swapped", "gauge", "requests", until="0.8"),
    Entry("vllm:admission_rejections_total", "sched.rejections", "counter", "requests", since="0.32"),
    Entry("vllm:spec_decode_num_drafts_total", "spec.drafts", "counter", "rounds", since="0.9", condition=_SPEC),
    Entry("vllm:spec_decode_num_draft_tokens_total", "spec.draft_tokens", "counter", "tokens", condition=_SPEC),
    Entry("vllm:spec_decode_num_accepted_tokens_total", "spec.accepted_tokens", "counter", "tokens", condition=_SPEC),
    # KV memory; what cache_config_info adds is in derive().
    Entry(
        "vllm:kv_cache_usage_perc",
        "kv.usage_ratio",
        "gauge",
        "ratio",
        combine="mean",
        since="0.9.2",
        caveat="0 to 1 in spite of its name; cached blocks nobody uses count as free",
    ),
    Entry(
        "vllm:gpu_cache_usage_perc",
        "kv.usage_ratio",
        "gauge",
        "ratio",
        combine="mean",
        unless="vllm:kv_cache_usage_perc",
        until="0.11",
    ),
    Entry("vllm:cache_config_info", "", "info", caveat="its labels change with the version"),
    Entry("process_start_time_seconds", "process.start_time", "gauge", "s", combine="max"),
    # The residency of blocks.
    Entry(
        "vllm:kv_block_lifetime_seconds",
        "block.lifetime",
        "histogram",
        "s",
        since="0.15",
        condition=_RESIDENCY,
        caveat=_EVICTED_ONLY,
    ),
    Entry(
        "vllm:kv_block_idle_before_evict_seconds",
        "block.idle",
        "histogram",
        "s",
        since="0.15",
        condition=_RESIDENCY,
        caveat=_EVICTED_ONLY,
    ),
    Entry(
        "vllm:kv_block_reuse_gap_seconds",
        "block.reuse_gap",
        "histogram",
        "s",
        since="0.15",
        condition=_RESIDENCY,
        caveat=_EVICTED_ONLY,
    ),
    # Prompts by where their KV came from, at admission: another thing than the reads of a decode step.
    *(
        Entry(
            "vllm:prompt_tokens_cached_by_source_total",
            "prefix.hits_by_tier",
            "counter",
            "tokens",
            where=(("source", source),),
            labels=(("tier", tier),),
            since="0.32",
        )
        for source, tier in _SOURCES
    ),
    Entry(
        "vllm:external_prefix_cache_queries_total",
        "tier.queries",
        "counter",
        "tokens",
        since="0.15",
        caveat="stays 0 without a KV connector, which is not a measured zero",
    ),
    Entry("vllm:external_prefix_cache_hits_total", "tier.hits", "counter", "tokens", since="0.15"),
    Entry(
        "vllm:cpu_cache_usage_perc",
        "tier.usage_ratio",
        "gauge",
        "ratio",
        combine="mean",
        labels=(("tier", "host"),),
        until="0.8",
    ),
    # What a request saw.
    Entry(
        "vllm:time_to_first_token_seconds",
        "latency.ttft",
        "histogram",
        "s",
        caveat="up to the first token; later waiting after a preemption is inside the token gaps",
    ),
    Entry(
        "vllm:inter_token_latency_seconds",
        "latency.itl",
        "histogram",
        "s",
        since="0.11",
        caveat="one value per output step, which holds several tokens with speculative decoding",
    ),
    Entry(
        "vllm:time_per_output_token_seconds",
        "latency.itl",
        "histogram",
        "s",
        unless="vllm:inter_token_latency_seconds",
        until="0.12",
    ),
    Entry("vllm:request_time_per_output_token_seconds", "latency.tpot", "histogram", "s", since="0.11"),
    Entry("vllm:e2e_request_latency_seconds", "latency.e2e", "histogram", "s"),
    Entry(
        "vllm:request_queue_time_seconds",
        "sched.queue_time",
        "histogram",
        "s",
        caveat="ends at the first scheduling; buckets start at 0.3 s, so the mean says more",
    ),
    Entry(
        "vllm:time_in_queue_requests",
        "sched.queue_time",
        "histogram",
        "s",
        unless="vllm:request_queue_time_seconds",
        until="0.8",
    ),
    Entry("vllm:request_prefill_time_seconds", "latency.prefill_time", "histogram", "s"),
    Entry("vllm:request_decode_time_seconds", "latency.decode_time", "histogram", "s"),
    Entry("vllm:request_inference_time_seconds", "latency.inference_time", "histogram", "s"),
    Entry("vllm:request_prefill_kv_computed_tokens", "request.tokens_computed", "histogram", "tokens", since="0.15"),
    Entry("vllm:request_prompt_tokens", "request.tokens_in", "histogram", "tokens"),
    Entry("vllm:request_generation_tokens", "request.tokens_out", "histogram", "tokens"),
    Entry("vllm:request_num_preemptions", "request.preemptions", "histogram", "events", since="0.31"),
    Entry("vllm:kv_offload_stores_skipped_total", "tier.failures", "counter", "events", since="0.33"),
    *CONNECTORS,
)


def detect(names: Collection[str]) -> bool:
    return any(name.startswith("vllm:") for name in names) and not is_router(names)


_OVERRIDDEN = "kv_cache_memory_bytes is not used: --num-gpu-blocks-override made the pool"


def derive(
    infos: Mapping[str, Sequence[Mapping[str, str]]], values: Mapping[str, float], flags: Mapping[str, str]
) -> Derived:
    """Read pool sizes and settings from ``cache_config_info``, one series per engine core.

    One block of a core's pool (the null block) never holds a request, and the usage is a share of the others. The
    label ``kv_cache_memory_bytes`` is what was asked for: under an override it says nothing about the pool. In hybrid
    models the tokens are an approximation: blocks are unequal. The flag ``--max-num-seqs`` is a limit per core.
    """
    configs = infos.get("vllm:cache_config_info", ())
    found, tags = _limit(flags, max(1, len(configs)))
    if not configs:
        return Derived(found, tags)
    first = configs[0]
    if "cache_dtype" in first:
        tags["dtype"] = first["cache_dtype"]
    if "enable_prefix_caching" in first:
        tags["prefix_caching"] = "on" if first["enable_prefix_caching"] == "True" else "off"
    block = number(first, "effective_attention_block_size") or number(first, "block_size")
    if block:
        found["kv.block_size"] = block
    capacity = _capacity_tokens(configs, block)
    if capacity is None:
        return Derived(found, tags)
    found["kv.capacity_tokens"] = capacity
    usable = capacity - (block or 0.0) * len(configs)
    usage = values.get("kv.usage_ratio")
    if usage is not None:
        found["kv.used_tokens"] = usage * usable
    if number(first, "num_gpu_blocks_override") is not None:
        return Derived(found, tags, (_OVERRIDDEN,))
    sizes = [number(config, "kv_cache_memory_bytes") for config in configs]
    reserved = sum(size for size in sizes if size is not None)
    if reserved and None not in sizes:
        found["kv.reserved_bytes"] = reserved
        found["kv.bytes_per_token_assumed"] = reserved / capacity
        if usage is not None:
            found["kv.resident_bytes"] = usage * usable * reserved / capacity
    return Derived(found, tags)


def _limit(flags: Mapping[str, str], cores: int) -> tuple[dict[str, float], dict[str, str]]:
    """Return the limit on running requests as a value and as a tag; the default of a server without the flag varies."""
    limit = number(flags, "max-num-seqs")
    return ({}, {}) if not limit else ({"sched.max_running": limit * cores}, {"cap": f"{limit * cores:g}"})


def _capacity_tokens(configs: Sequence[Mapping[str, str]], block: float | None) -> float | None:
    """Return the tokens all cores' pools hold. ``kv_cache_size_tokens`` is per core, ``num_gpu_blocks`` of all."""
    sizes = [number(config, "kv_cache_size_tokens") for config in configs]
    if sizes and None not in sizes:
        return sum(size for size in sizes if size is not None)
    blocks = max((number(config, "num_gpu_blocks") or 0.0 for config in configs), default=0.0)
    return blocks * block if blocks and block else None
