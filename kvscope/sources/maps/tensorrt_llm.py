"""TensorRT-LLM's Prometheus page; read in its metrics collector. Its JSON statistics are read by ``trtllm_json``.

Releases before 1.3 have a part of these names; which flag fills them is in ``condition``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kvscope.sources.mapping import Derived, Entry, number, tokens_of_blocks

ENGINE = "tensorrt-llm"
ROLE = "engine"
EXPECTS = "names starting with trtllm_"
IDENTITY = {"model_name": "model"}
VERSION_PATH = "/version"
FLAGS = ("max-batch-size",)

_PERF = "return_perf_metrics: true"
_ITER = "enable_iter_perf_stats: true"
_LEVELS = (("gpu", "device"), ("host", "host"), ("disk", "disk"))


def _seconds(name: str, metric: str) -> Entry:
    return Entry(name, metric, "histogram", "s", condition=_PERF)


MAP = (
    Entry("trtllm_generation_tokens_total", "tokens.generated", "counter", "tokens"),
    Entry("trtllm_prompt_tokens_total", "tokens.prompt", "counter", "tokens", caveat="cached tokens count too"),
    Entry("trtllm_request_success_total", "requests.finished", "counter", "requests"),
    Entry("trtllm_request_error_total", "requests.errors", "counter", "requests"),
    Entry("trtllm_num_requests_running", "sched.running", "gauge", "requests"),
    Entry("trtllm_num_requests_waiting", "sched.waiting", "gauge", "requests"),
    Entry(
        "trtllm_num_paused_requests",
        "sched.paused",
        "gauge",
        "requests",
        condition=_ITER,
        caveat="stays 0 under the default scheduler, which evicts nobody: says nothing of pressure",
    ),
    Entry("trtllm_kv_cache_utilization", "kv.usage_ratio", "gauge", "ratio", combine="mean"),
    Entry("trtllm_kv_cache_tokens_per_block", "kv.block_size", "gauge", "tokens", combine="max"),
    Entry("trtllm_kv_cache_used_blocks", "kv.used_blocks", "gauge", "blocks"),
    Entry("trtllm_kv_cache_max_blocks", "kv.capacity_blocks", "gauge", "blocks"),
    Entry("trtllm_prompt_cached_tokens_total", "prefix.hits", "counter", "tokens"),
    Entry(
        "trtllm_prompt_tokens_total",
        "prefix.queries",
        "counter",
        "tokens",
        caveat="every prompt token counts as looked up",
    ),
    *(
        Entry(
            "trtllm_prompt_cache_hit_tokens_total",
            "prefix.hits_by_tier",
            "counter",
            "tokens",
            where=(("cache_tier", level),),
            labels=(("tier", tier),),
            caveat="disk pages already prefetched count as host",
        )
        for level, tier in _LEVELS
    ),
    Entry("trtllm_kv_cache_onboard_bytes_total", "tier.bytes_in", "counter", "B", condition=_ITER),
    Entry("trtllm_kv_cache_offload_bytes_total", "tier.bytes_out", "counter", "B", condition=_ITER),
    Entry(
        "trtllm_kv_cache_disk_prefetch_blocks_total",
        "tier.blocks_in",
        "counter",
        "blocks",
        condition=_ITER,
        caveat="from disk to the host",
    ),
    Entry(
        "trtllm_kv_cache_host_utilization",
        "tier.usage_ratio",
        "gauge",
        "ratio",
        combine="mean",
        labels=(("tier", "host"),),
        condition=_ITER,
    ),
    Entry("trtllm_gpu_memory_usage_bytes", "gpu.mem_used", "gauge", "B", condition=_ITER),
    Entry("trtllm_prefill_batch_tokens", "batch.tokens_per_step", "histogram", "tokens", caveat="context tokens only"),
    Entry("trtllm_spec_decode_num_draft_tokens_total", "spec.draft_tokens", "counter", "tokens"),
    Entry("trtllm_spec_decode_num_accepted_tokens_total", "spec.accepted_tokens", "counter", "tokens"),
    _seconds("trtllm_time_to_first_token_seconds", "latency.ttft"),
    _seconds("trtllm_time_per_output_token_seconds", "latency.tpot"),
    _seconds("trtllm_e2e_request_latency_seconds", "latency.e2e"),
    _seconds("trtllm_request_queue_time_seconds", "sched.queue_time"),
    _seconds("trtllm_request_prefill_time_seconds", "latency.prefill_time"),
    _seconds("trtllm_request_decode_time_seconds", "latency.decode_time"),
    _seconds("trtllm_request_inference_time_seconds", "latency.inference_time"),
    Entry("trtllm_kv_cache_config_info", "", "info"),
    Entry("process_start_time_seconds", "process.start_time", "gauge", "s", combine="max"),
)


def detect(names: Collection[str]) -> bool:
    return any(name.startswith("trtllm_") and not name.startswith("trtllm_kv_transfer_") for name in names)


def derive(
    infos: Mapping[str, Sequence[Mapping[str, str]]], values: Mapping[str, float], flags: Mapping[str, str]
) -> Derived:
    """Turn blocks into tokens; ``--max_batch_size`` is the limit on running requests."""
    found = tokens_of_blocks(values)
    limit = number(flags, "max-batch-size")
    if not limit:
        return Derived(found)
    return Derived({**found, "sched.max_running": limit}, {"cap": f"{limit:g}"})
