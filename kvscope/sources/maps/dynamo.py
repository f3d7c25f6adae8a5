"""NVIDIA Dynamo's router and workers, and KVBM, its block manager; read in its wheels.

``h2d`` is host-to-disk in ``kvbm_offload_*`` and host-to-device in ``kvbm_onboard_*``. What an engine behind it says on
the same page is taken from the engine. ``queued_requests`` is left out: it counts requests in prefill too, and would
be taken for a queue.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kvscope.sources.mapping import Derived, Entry, tokens_of_blocks

ENGINE = "dynamo"
ROLE = "router"
EXPECTS = "names starting with dynamo_ or kvbm_"
IDENTITY = {"model": "model"}
VERSION_PATH = ""
FLAGS = ()

_KVBM = "KVBM"
_FRONT = "dynamo_frontend_"
_PART = "dynamo_component_"
_OLD = _PART + "kvstats_"
_SHARE = "0 to 1 in spite of its name"
_BEFORE_1 = "0.9"
_WORKER = (("worker_id", "worker"),)
_ROUTER = "seen by the router, network included"

MAP = (
    Entry(_FRONT + "output_tokens_total", "tokens.generated", "counter", "tokens", since="1.0"),
    Entry(_FRONT + "input_sequence_tokens_sum", "tokens.prompt", "counter", "tokens", caveat="the sum of a histogram"),
    Entry(
        _FRONT + "inflight_requests", "sched.running", "gauge", "requests", caveat="all that the router has in flight"
    ),
    Entry(_FRONT + "model_max_num_seqs", "sched.max_running", "gauge", "requests", caveat="of one worker"),
    Entry(
        _PART + "gpu_cache_usage_percent",
        "kv.usage_ratio",
        "gauge",
        "ratio",
        combine="mean",
        since="1.0",
        caveat=_SHARE,
    ),
    Entry(
        _OLD + "gpu_cache_usage_percent",
        "kv.usage_ratio",
        "gauge",
        "ratio",
        combine="mean",
        until=_BEFORE_1,
        unless=_PART + "gpu_cache_usage_percent",
        caveat=_SHARE,
    ),
    Entry(_PART + "total_blocks", "kv.capacity_blocks", "gauge", "blocks", since="1.0"),
    Entry(
        _OLD + "total_blocks", "kv.capacity_blocks", "gauge", "blocks", unless=_PART + "total_blocks", until=_BEFORE_1
    ),
    Entry(
        _FRONT + "model_total_kv_blocks",
        "kv.capacity_blocks",
        "gauge",
        "blocks",
        unless=_PART + "total_blocks",
        caveat="of one worker",
    ),
    Entry(_FRONT + "model_max_num_batched_tokens", "config.max_batched_tokens", "gauge", "tokens", combine="max"),
    Entry(_OLD + "active_blocks", "kv.used_blocks", "gauge", "blocks", until=_BEFORE_1),
    Entry(_FRONT + "model_kv_cache_block_size", "kv.block_size", "gauge", "tokens", combine="max"),
    Entry(_FRONT + "cached_tokens_sum", "prefix.hits", "counter", "tokens", caveat="the sum of a histogram"),
    Entry(_FRONT + "input_sequence_tokens_sum", "prefix.queries", "counter", "tokens"),
    # KVBM: its blocks move between device, host, disk and object store.
    Entry("kvbm_onboard_blocks_h2d", "tier.blocks_in", "counter", "blocks", condition=_KVBM, caveat="host to device"),
    Entry("kvbm_onboard_blocks_d2d", "tier.blocks_in", "counter", "blocks", condition=_KVBM, caveat="disk to device"),
    Entry("kvbm_onboard_blocks_o2d", "tier.blocks_in", "counter", "blocks", condition=_KVBM, caveat="store to device"),
    Entry("kvbm_offload_blocks_d2h", "tier.blocks_out", "counter", "blocks", condition=_KVBM, caveat="device to host"),
    Entry("kvbm_offload_blocks_d2d", "tier.blocks_out", "counter", "blocks", condition=_KVBM, caveat="device to disk"),
    Entry("kvbm_offload_blocks_d2o", "tier.blocks_out", "counter", "blocks", condition=_KVBM, caveat="device to store"),
    Entry("kvbm_onboard_bytes_object", "tier.bytes_in", "counter", "B", condition=_KVBM, caveat="object store only"),
    Entry("kvbm_offload_bytes_object", "tier.bytes_out", "counter", "B", condition=_KVBM, caveat="object store only"),
    Entry("kvbm_matched_tokens", "tier.hits", "counter", "tokens", condition=_KVBM),
    # What a request saw.
    Entry(_FRONT + "time_to_first_token_seconds", "latency.ttft", "histogram", "s", caveat=_ROUTER),
    Entry(_FRONT + "inter_token_latency_seconds", "latency.itl", "histogram", "s", caveat=_ROUTER),
    Entry(_FRONT + "request_duration_seconds", "latency.e2e", "histogram", "s", caveat=_ROUTER),
    Entry(_FRONT + "request_duration_seconds_count", "requests.finished", "counter", "requests"),
    Entry(_FRONT + "input_sequence_tokens", "request.tokens_in", "histogram", "tokens"),
    Entry(_FRONT + "output_sequence_tokens", "request.tokens_out", "histogram", "tokens"),
    # What its router knows of each worker.
    Entry(_FRONT + "worker_active_decode_blocks", "router.kv_blocks", "gauge", "blocks", rename=_WORKER, since="1.0"),
    Entry(
        _FRONT + "worker_active_prefill_tokens", "router.prefill_tokens", "gauge", "tokens", rename=_WORKER, since="1.0"
    ),
    Entry("trtllm_kv_transfer_latency_seconds", "disagg.transfer_time", "histogram", "s", condition="a TRT-LLM worker"),
    Entry("trtllm_kv_transfer_bytes", "disagg.bytes", "histogram", "B", condition="a TRT-LLM worker"),
)


def detect(names: Collection[str]) -> bool:
    return any(name.startswith(("dynamo_", "kvbm_")) for name in names)


def derive(
    infos: Mapping[str, Sequence[Mapping[str, str]]], values: Mapping[str, float], flags: Mapping[str, str]
) -> Derived:
    """Turn blocks into tokens."""
    return Derived(tokens_of_blocks(values))
