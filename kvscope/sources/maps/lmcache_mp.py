"""LMCache as a server of its own (``lmcache_mp_`` names, from OpenTelemetry): L0 is the GPU, L1 the host, L2 beyond."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kvscope.sources.mapping import Derived, Entry

ENGINE = "lmcache-mp"
ROLE = "cache"
EXPECTS = "names starting with lmcache_mp_"
IDENTITY = {"model_name": "model"}
VERSION_PATH = ""
FLAGS = ()

_STAGED = (("phase", "staging"),)
_PHASES = "phases of one transfer overlap: only staging is counted"
_CHUNKS = "chunks of many tokens"


def _counter(name: str, metric: str, unit: str, caveat: str = "") -> Entry:
    return Entry(f"lmcache_mp_{name}", metric, "counter", unit, since="0.5", caveat=caveat)


MAP = (
    _counter("lookup_requested_tokens_total", "tier.queries", "tokens"),
    _counter("lookup_hit_tokens_total", "tier.hits", "tokens"),
    Entry(
        "lmcache_mp_lookup_hit_l1_tokens_total",
        "prefix.hits_by_tier",
        "counter",
        "tokens",
        labels=(("tier", "host"),),
        since="0.5",
    ),
    Entry(
        "lmcache_mp_lookup_hit_l2_tokens_total",
        "prefix.hits_by_tier",
        "counter",
        "tokens",
        labels=(("tier", "remote"),),
        since="0.5",
    ),
    _counter("num_chunks_loaded_total", "tier.blocks_in", "blocks", _CHUNKS),
    _counter("l1_write_chunks_total", "tier.blocks_out", "blocks", _CHUNKS),
    _counter("l1_evicted_chunks_total", "cache.evictions", "events", _CHUNKS),
    _counter("l1_allocation_failure_chunks_total", "tier.failures", "events", _CHUNKS),
    _counter("l1_read_failure_chunks_total", "tier.failures", "events", _CHUNKS),
    _counter("l2_prefetch_failure_chunks_total", "tier.failures", "events", _CHUNKS),
    _counter("timeouts_total", "tier.failures", "events"),
    Entry(
        "lmcache_mp_transfer_phase_bytes_total",
        "tier.bytes_in",
        "counter",
        "B",
        where=_STAGED,
        since="0.5",
        caveat="both ways together; " + _PHASES,
    ),
    Entry(
        "lmcache_mp_transfer_phase_elapsed_seconds_total",
        "tier.load_time",
        "counter",
        "s",
        where=_STAGED,
        since="0.5",
        caveat="both ways together; " + _PHASES,
    ),
    Entry(
        "lmcache_mp_l1_usage_ratio",
        "tier.usage_ratio",
        "gauge",
        "ratio",
        combine="mean",
        labels=(("tier", "host"),),
        since="0.5",
    ),
    Entry("lmcache_mp_l1_memory_usage_bytes", "tier.used_bytes", "gauge", "B", labels=(("tier", "host"),), since="0.5"),
    Entry("lmcache_mp_l2_usage_bytes", "tier.used_bytes", "gauge", "B", labels=(("tier", "remote"),), since="0.5"),
    Entry("lmcache_mp_num_inflight_l2_loads", "tier.pending", "gauge", "transfers", since="0.5"),
    Entry("lmcache_mp_num_inflight_l2_stores", "tier.pending", "gauge", "transfers", since="0.5"),
    Entry("lmcache_mp_l0_block_lifetime_seconds", "block.lifetime", "histogram", "s", since="0.5"),
    Entry("lmcache_mp_l0_block_idle_before_evict_seconds", "block.idle", "histogram", "s", since="0.5"),
    Entry("lmcache_mp_l0_block_reuse_gap_seconds", "block.reuse_gap", "histogram", "s", since="0.5"),
    Entry("lmcache_mp_l1_chunk_lifetime_seconds", "tier.block_lifetime", "histogram", "s", since="0.5"),
    Entry("lmcache_mp_l1_chunk_idle_before_evict_seconds", "tier.block_idle", "histogram", "s", since="0.5"),
    Entry("lmcache_mp_l1_chunk_reuse_gap_seconds", "tier.block_reuse_gap", "histogram", "s", since="0.5"),
    Entry("process_start_time_seconds", "process.start_time", "gauge", "s", combine="max"),
)


def detect(names: Collection[str]) -> bool:
    return any(name.startswith("lmcache_mp_") for name in names)


def derive(
    infos: Mapping[str, Sequence[Mapping[str, str]]], values: Mapping[str, float], flags: Mapping[str, str]
) -> Derived:
    """Nothing is said in labels."""
    return Derived()
