"""vLLM's names for KV that leaves the GPU: offloading, tiers, HiSparse, and prefill apart from decode.

Absent, or 0, without the connector that writes them: that is not a measured zero.
"""

from __future__ import annotations

from kvscope.sources.mapping import Entry

HISPARSE = "HiSparseConnector on a sparse-MLA model"
_RESIDENCY = "HiSparseConnector with --kv-cache-metrics"
_OFFLOAD = "OffloadingConnector"
_TIERING = "OffloadingConnector with tiers"
_SIMPLE = "SimpleCPUOffloadConnector"
_NIXL = "NixlConnector"
_MOONCAKE = "MooncakeConnector"
_STORE = "MooncakeStoreConnector"
_HF3FS = "HF3FSConnector"
_IN, _OUT = (("transfer_type", "CPU_to_GPU"),), (("transfer_type", "GPU_to_CPU"),)
_JUMPS = "sampled every 2000 worker steps: it stands still, then jumps"
_OVERLAPS = "time of the copy, which overlaps with compute"
_LOAD, _STORE_BYTES = "vllm:kv_offload_load_bytes_total", "vllm:kv_offload_store_bytes_total"
_LOAD_TIME, _STORE_TIME = "vllm:kv_offload_load_time_total", "vllm:kv_offload_store_time_total"
_TIER = "vllm:kv_offload_tiering_"


def _failure(name: str, condition: str, since: str, until: str = "") -> Entry:
    return Entry(name, "tier.failures", "counter", "events", since=since, until=until, condition=condition)


OFFLOAD = (
    Entry(_LOAD, "tier.bytes_in", "counter", "B", since="0.24", condition=_OFFLOAD),
    Entry(_STORE_BYTES, "tier.bytes_out", "counter", "B", since="0.24", condition=_OFFLOAD),
    Entry(_LOAD_TIME, "tier.load_time", "counter", "s", since="0.24", condition=_OFFLOAD, caveat=_OVERLAPS),
    Entry(_STORE_TIME, "tier.store_time", "counter", "s", since="0.24", condition=_OFFLOAD, caveat=_OVERLAPS),
    Entry(
        "vllm:kv_offload_total_bytes_total",
        "tier.bytes_in",
        "counter",
        "B",
        where=_IN,
        unless=_LOAD,
        since="0.20",
        condition=_OFFLOAD,
        caveat="an old alias, still written beside its successor: never added to it",
    ),
    Entry(
        "vllm:kv_offload_total_bytes_total",
        "tier.bytes_out",
        "counter",
        "B",
        where=_OUT,
        unless=_STORE_BYTES,
        since="0.20",
        condition=_OFFLOAD,
    ),
    Entry(
        "vllm:kv_offload_total_time_total",
        "tier.load_time",
        "counter",
        "s",
        where=_IN,
        unless=_LOAD_TIME,
        since="0.20",
        condition=_OFFLOAD,
    ),
    Entry(
        "vllm:kv_offload_total_time_total",
        "tier.store_time",
        "counter",
        "s",
        where=_OUT,
        unless=_STORE_TIME,
        since="0.20",
        condition=_OFFLOAD,
    ),
    Entry(
        "vllm:kv_offload_cpu_cache_usage_perc",
        "tier.inflight_ratio",
        "gauge",
        "ratio",
        combine="mean",
        since="0.24",
        condition=_OFFLOAD,
        caveat="the share pinned by transfers, in spite of its name: 0 when idle even if full",
    ),
    Entry(
        "vllm:kv_offload_lookup_sync_delay_seconds",
        "tier.lookup_time",
        "histogram",
        "s",
        since="0.28",
        condition=_OFFLOAD,
    ),
    _failure("vllm:kv_offload_allocation_failure_total", _OFFLOAD, "0.28"),
    Entry(
        _TIER + "read_bytes_total",
        "tier.bytes_in",
        "counter",
        "B",
        since="0.28",
        condition=_TIERING,
        caveat="from the second tier to the host: another flow than the host's to the GPU",
    ),
    Entry(_TIER + "write_bytes_total", "tier.bytes_out", "counter", "B", since="0.28", condition=_TIERING),
    Entry(_TIER + "read_time_total", "tier.load_time", "counter", "s", since="0.28", condition=_TIERING),
    Entry(_TIER + "write_time_total", "tier.store_time", "counter", "s", since="0.28", condition=_TIERING),
    Entry(_TIER + "active_promotion_jobs", "tier.pending", "gauge", "transfers", since="0.28", condition=_TIERING),
    Entry(_TIER + "active_cascade_jobs", "tier.pending", "gauge", "transfers", since="0.28", condition=_TIERING),
    _failure(_TIER + "promotion_job_failures_total", _TIERING, "0.28"),
    _failure(_TIER + "cascade_job_failures_total", _TIERING, "0.28"),
    _failure(_TIER + "promotion_allocation_failures_total", _TIERING, "0.28"),
    _failure(_TIER + "backpressure_stores_dropped_total", _TIERING, "0.31"),
    Entry(
        "vllm:simple_kv_offload_load_blocks_total",
        "tier.blocks_in",
        "counter",
        "blocks",
        since="0.31",
        condition=_SIMPLE,
    ),
    Entry(
        "vllm:simple_kv_offload_save_outcomes_total",
        "tier.blocks_out",
        "counter",
        "blocks",
        where=(("outcome", "stored"),),
        since="0.31",
        condition=_SIMPLE,
    ),
    Entry(
        "vllm:simple_kv_offload_save_outcomes_total",
        "tier.failures",
        "counter",
        "events",
        where=(("outcome", "dropped_cpu_full"),),
        since="0.31",
        condition=_SIMPLE,
    ),
    Entry(
        "vllm:simple_kv_offload_pending_store_blocks",
        "tier.pending",
        "gauge",
        "transfers",
        since="0.31",
        condition=_SIMPLE,
        caveat="blocks that wait to be stored",
    ),
    Entry(
        "vllm:mooncake_store_operation_bytes_total",
        "tier.bytes_in",
        "counter",
        "B",
        where=(("operation", "get"),),
        since="0.24",
        condition=_STORE,
        caveat="values of the label operation are not confirmed",
    ),
    Entry(
        "vllm:mooncake_store_operation_bytes_total",
        "tier.bytes_out",
        "counter",
        "B",
        where=(("operation", "put"),),
        since="0.24",
        condition=_STORE,
        caveat="values of the label operation are not confirmed",
    ),
    _failure("vllm:mooncake_store_operation_failed_keys_total", _STORE, "0.24"),
    _failure("vllm:hf3fs_num_failed_save_total", _HF3FS, "0.20"),
    _failure("vllm:hf3fs_num_failed_load_total", _HF3FS, "0.20"),
)

SPARSE = (
    Entry(
        "vllm:hisparse_cache_hits_total",
        "tier.hot_accesses",
        "counter",
        "rows",
        since="0.32",
        condition=HISPARSE,
        caveat="once per group of layers that share a selection; rows on resident pages are not counted; " + _JUMPS,
    ),
    Entry(
        "vllm:hisparse_cache_misses_total",
        "tier.cold_accesses",
        "counter",
        "rows",
        since="0.32",
        condition=HISPARSE,
        caveat=_JUMPS,
    ),
    Entry(
        "vllm:hisparse_host_to_device_bytes_total",
        "tier.bytes_in",
        "counter",
        "B",
        since="0.32",
        condition=HISPARSE,
        caveat="computed by the engine, not measured; " + _JUMPS,
    ),
    Entry(
        "vllm:hisparse_host_cache_usage_perc",
        "tier.usage_ratio",
        "gauge",
        "ratio",
        combine="mean",
        labels=(("tier", "host"),),
        since="0.32",
        condition=HISPARSE,
        caveat="0 to 1 in spite of its name; cached blocks nobody uses count as free",
    ),
    Entry(
        "vllm:hisparse_pending_page_transfers", "tier.pending", "gauge", "transfers", since="0.32", condition=HISPARSE
    ),
    Entry(
        "vllm:hisparse_host_block_lifetime_seconds",
        "tier.block_lifetime",
        "histogram",
        "s",
        since="0.32",
        condition=_RESIDENCY,
    ),
    Entry(
        "vllm:hisparse_host_block_idle_before_evict_seconds",
        "tier.block_idle",
        "histogram",
        "s",
        since="0.32",
        condition=_RESIDENCY,
    ),
    Entry(
        "vllm:hisparse_host_block_reuse_gap_seconds",
        "tier.block_reuse_gap",
        "histogram",
        "s",
        since="0.32",
        condition=_RESIDENCY,
    ),
)


def _lost(name: str, condition: str, since: str) -> Entry:
    return Entry(name, "disagg.failures", "counter", "events", since=since, condition=condition)


DISAGGREGATED = (
    Entry(
        "vllm:num_requests_kv_fetch_by_stage",
        "sched.fetching",
        "gauge",
        "requests",
        keep=("stage",),
        since="0.32",
        condition="a KV connector that loads",
    ),
    Entry("vllm:nixl_xfer_time_seconds", "disagg.transfer_time", "histogram", "s", since="0.15", condition=_NIXL),
    Entry("vllm:nixl_bytes_transferred", "disagg.bytes", "histogram", "B", since="0.15", condition=_NIXL),
    _lost("vllm:nixl_num_failed_transfers_total", _NIXL, "0.15"),
    # Failed notifications are among the failed transfers already.
    _lost("vllm:nixl_num_kv_expired_reqs_total", _NIXL, "0.15"),
    Entry(
        "vllm:mooncake_xfer_time_seconds", "disagg.transfer_time", "histogram", "s", since="0.33", condition=_MOONCAKE
    ),
    Entry("vllm:mooncake_bytes_transferred", "disagg.bytes", "histogram", "B", since="0.33", condition=_MOONCAKE),
    _lost("vllm:mooncake_num_failed_transfers_total", _MOONCAKE, "0.33"),
    _lost("vllm:mooncake_num_failed_recvs_total", _MOONCAKE, "0.33"),
    _lost("vllm:mooncake_num_kv_expired_reqs_total", _MOONCAKE, "0.33"),
)

CONNECTORS = OFFLOAD + SPARSE + DISAGGREGATED
