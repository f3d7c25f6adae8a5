"""SGLang's names for KV outside the pool: HiCache (host and storage), and prefill apart from decode.

HiSparse counts misses in its kernels and exports none of it: only the decode log line tells how full its pools are.
"""

from __future__ import annotations

from kvscope.sources.mapping import Entry

_RANKS = ("tp_rank", "pp_rank", "moe_ep_rank")
_HICACHE = "--enable-hierarchical-cache"
_STORAGE = "a HiCache storage backend"
_APART = "prefill and decode on different servers"
_OVERLAPS = "time of the copy, which overlaps with compute"
_POOLS = "one series per pool from 0.5.19 on"
_GAUGE = "a gauge up to 0.5.9: the last transfer only"

HICACHE = (
    Entry(
        "sglang:hicache_host_used_tokens",
        "tier.used_tokens",
        "gauge",
        "tokens",
        copies=_RANKS,
        since="0.5.11",
        condition=_HICACHE,
    ),
    Entry(
        "sglang:hicache_host_total_tokens",
        "tier.capacity_tokens",
        "gauge",
        "tokens",
        copies=_RANKS,
        since="0.5.11",
        condition=_HICACHE,
    ),
    Entry("sglang:evicted_tokens_total", "cache.evicted_tokens", "counter", "tokens", copies=_RANKS, since="0.5.9"),
    Entry(
        "sglang:load_back_tokens_total",
        "tier.tokens_in",
        "counter",
        "tokens",
        copies=_RANKS,
        since="0.5.9",
        condition=_HICACHE,
        caveat=_POOLS,
    ),
    Entry(
        "sglang:load_back_bytes_total",
        "tier.bytes_in",
        "counter",
        "B",
        since="0.5.19",
        condition=_HICACHE,
        caveat="each rank its own share: they add up",
    ),
    Entry(
        "sglang:load_back_duration_seconds_sum",
        "tier.load_time",
        "counter",
        "s",
        copies=_RANKS,
        since="0.5.9",
        condition=_HICACHE,
        caveat=_OVERLAPS,
    ),
    Entry(
        "sglang:hicache_backup_tokens_total",
        "tier.tokens_out",
        "counter",
        "tokens",
        copies=_RANKS,
        since="0.5.19",
        condition=_HICACHE,
        caveat=_POOLS,
    ),
    Entry("sglang:hicache_backup_bytes_total", "tier.bytes_out", "counter", "B", since="0.5.19", condition=_HICACHE),
    Entry(
        "sglang:hicache_backup_duration_seconds_sum",
        "tier.store_time",
        "counter",
        "s",
        copies=_RANKS,
        since="0.5.19",
        condition=_HICACHE,
        caveat=_OVERLAPS,
    ),
    Entry(
        "sglang:hicache_dropped_tokens_total",
        "cache.dropped_tokens",
        "counter",
        "tokens",
        copies=_RANKS,
        since="0.5.19",
        condition=_HICACHE,
    ),
    Entry(
        "sglang:storage_prefetch_hit_tokens_total",
        "tier.hits",
        "counter",
        "tokens",
        copies=_RANKS,
        since="0.5.21",
        condition=_STORAGE,
    ),
    Entry(
        "sglang:prefetched_tokens_total",
        "tier.tokens_in",
        "counter",
        "tokens",
        copies=_RANKS,
        unless="sglang:load_back_tokens_total",
        since="0.5.5",
        condition=_STORAGE,
        caveat="from storage to the host, a step before the host's to the GPU",
    ),
    Entry(
        "sglang:backuped_tokens_total",
        "tier.tokens_out",
        "counter",
        "tokens",
        copies=_RANKS,
        unless="sglang:hicache_backup_tokens_total",
        since="0.5.5",
        condition=_STORAGE,
        caveat="host to storage",
    ),
)

DISAGGREGATED = (
    *(
        Entry(
            f"sglang:{name}",
            "disagg.queue",
            "gauge",
            "requests",
            copies=_RANKS,
            labels=(("stage", stage),),
            since=since,
            until=until,
            condition=_APART,
        )
        for name, stage, since, until in (
            ("num_prefill_bootstrap_queue_reqs", "prefill_bootstrap", "0.5.15", ""),
            ("num_prefill_prealloc_queue_reqs", "prefill_bootstrap", "0.5.5", "0.5.11"),
            ("num_prefill_inflight_queue_reqs", "prefill_inflight", "0.5.5", ""),
            ("num_decode_prealloc_queue_reqs", "decode_prealloc", "0.5.5", ""),
            ("num_decode_transfer_queue_reqs", "decode_transfer", "0.5.5", ""),
        )
    ),
    Entry(
        "sglang:kv_transfer_latency_ms",
        "disagg.transfer_time",
        "histogram",
        "ms",
        scale=1e-3,
        since="0.5.11",
        condition=_APART,
        caveat=_GAUGE,
    ),
    Entry(
        "sglang:kv_transfer_total_mb",
        "disagg.bytes",
        "histogram",
        "MB",
        scale=1e6,
        since="0.5.11",
        condition=_APART,
        caveat=_GAUGE,
    ),
    Entry(
        "sglang:num_transfer_failed_reqs_total",
        "disagg.failures",
        "counter",
        "events",
        copies=_RANKS,
        since="0.5.5",
        condition=_APART,
    ),
)

TIERS = HICACHE + DISAGGREGATED
