"""Triton's inference server: its own counters (core 73aad7c) and those of its TensorRT-LLM backend (``nv_trt_llm_``).

A page of its vLLM backend has vLLM's own names, and is vLLM's. Several models stand on a page (a tokenizer before the
engine, an ensemble around both) and each counts the same request: the largest is taken. Times are cumulative without a
count of their own beside them, or summaries, and are left; first responses are a histogram where it is turned on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kvscope.sources.mapping import Derived, Entry, tokens_of_blocks

ENGINE = "triton"
ROLE = "engine"
EXPECTS = "names starting with nv_trt_llm_ or nv_inference_"
IDENTITY = {"model": "model"}
VERSION_PATH = ""
FLAGS = ()

_LLM = "the TensorRT-LLM backend"
_GPU = (("gpu_uuid", "gpu"),)
_REQUESTS = "nv_trt_llm_request_metrics"
_MODELS = "of all models the largest: an ensemble and its parts count the same requests"


def _requests(kind: str, metric: str) -> Entry:
    return Entry(_REQUESTS, metric, "gauge", "requests", where=(("request_type", kind),), condition=_LLM)


def _blocks(kind: str, metric: str, unit: str) -> Entry:
    return Entry(
        "nv_trt_llm_kv_cache_block_metrics",
        metric,
        "gauge",
        unit,
        combine="mean" if unit == "ratio" else "max" if unit == "tokens" else "sum",
        where=(("kv_cache_block_type", kind),),
        condition=_LLM,
    )


MAP = (
    _requests("scheduled", "sched.running"),
    _requests("waiting", "sched.waiting"),
    _requests("max", "sched.max_running"),
    Entry(
        "nv_trt_llm_inflight_batcher_metrics",
        "sched.paused",
        "gauge",
        "requests",
        where=(("inflight_batcher_specific_metric", "paused_requests"),),
        condition=_LLM,
    ),
    Entry(
        "nv_inference_pending_request_count",
        "sched.waiting",
        "gauge",
        "requests",
        combine="max",
        unless=_REQUESTS,
        caveat="before the backend; " + _MODELS,
    ),
    _blocks("fraction", "kv.usage_ratio", "ratio"),
    _blocks("used", "kv.used_blocks", "blocks"),
    _blocks("max", "kv.capacity_blocks", "blocks"),
    _blocks("tokens_per", "kv.block_size", "tokens"),
    Entry("nv_llm_output_token_len_sum", "tokens.generated", "counter", "tokens", condition=_LLM),
    Entry("nv_llm_input_token_len_sum", "tokens.prompt", "counter", "tokens", condition=_LLM),
    Entry("nv_llm_output_token_len", "request.tokens_out", "histogram", "tokens", condition=_LLM),
    Entry("nv_llm_input_token_len", "request.tokens_in", "histogram", "tokens", condition=_LLM),
    Entry("nv_inference_request_success", "requests.finished", "counter", "requests", combine="max", caveat=_MODELS),
    Entry("nv_inference_request_failure", "requests.errors", "counter", "requests", combine="max", caveat=_MODELS),
    Entry(
        "nv_inference_first_response_histogram_ms",
        "latency.ttft",
        "histogram",
        "ms",
        scale=1e-3,
        combine="max",
        condition="--metrics-config histogram_latencies=true, and a model that answers in parts",
    ),
    Entry("nv_gpu_utilization", "gpu.util", "gauge", "ratio", combine="mean", rename=_GPU),
    Entry("nv_gpu_memory_used_bytes", "gpu.mem_used", "gauge", "B", rename=_GPU),
    Entry("nv_gpu_power_usage", "gpu.power", "gauge", "W", rename=_GPU),
    Entry("nv_gpu_power_limit", "gpu.power_cap", "gauge", "W", rename=_GPU),
    Entry("nv_energy_consumption", "gpu.energy", "counter", "J", rename=_GPU),
)


def detect(names: Collection[str]) -> bool:
    return any(name.startswith(("nv_trt_llm_", "nv_inference_")) for name in names) and not any(
        name.startswith("vllm:") for name in names
    )


def derive(
    infos: Mapping[str, Sequence[Mapping[str, str]]], values: Mapping[str, float], flags: Mapping[str, str]
) -> Derived:
    """Turn blocks into tokens."""
    return Derived(tokens_of_blocks(values))
