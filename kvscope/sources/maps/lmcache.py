"""LMCache inside an engine's process (``lmcache:`` names): a KV store beside the engine whose page it writes on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kvscope.sources.mapping import Derived, Entry

ENGINE = "lmcache"
ROLE = "cache"
EXPECTS = "names starting with lmcache:"
IDENTITY = {"model_name": "model"}
VERSION_PATH = ""
FLAGS = ()

_WORKERS = ("worker_id",)
_REMOTE = "to and from the remote store only; the host's part is not counted"
_SECONDS = "seconds; its name does not say so"
_COPIES = "every worker counts the same tokens"

MAP = (
    Entry(
        "lmcache:num_requested_tokens_total",
        "tier.queries",
        "counter",
        "tokens",
        copies=_WORKERS,
        since="0.5",
        caveat=_COPIES,
    ),
    Entry("lmcache:num_hit_tokens_total", "tier.hits", "counter", "tokens", copies=_WORKERS, since="0.5"),
    Entry("lmcache:num_stored_tokens_total", "tier.tokens_out", "counter", "tokens", copies=_WORKERS, since="0.5"),
    Entry("lmcache:num_hit_tokens_total", "tier.tokens_in", "counter", "tokens", copies=_WORKERS, since="0.5"),
    Entry("lmcache:num_vllm_hit_tokens_total", "prefix.hits", "counter", "tokens", copies=_WORKERS, since="0.5"),
    Entry("lmcache:num_prompt_tokens_total", "prefix.queries", "counter", "tokens", copies=_WORKERS, since="0.5"),
    Entry("lmcache:num_prompt_tokens_total", "tokens.prompt", "counter", "tokens", copies=_WORKERS, since="0.5"),
    Entry("lmcache:num_remote_read_bytes_total", "tier.bytes_in", "counter", "B", since="0.5", caveat=_REMOTE),
    Entry("lmcache:num_remote_write_bytes_total", "tier.bytes_out", "counter", "B", since="0.5", caveat=_REMOTE),
    Entry(
        "lmcache:time_to_retrieve_sum", "tier.load_time", "counter", "s", copies=_WORKERS, since="0.5", caveat=_SECONDS
    ),
    Entry(
        "lmcache:time_to_store_sum", "tier.store_time", "counter", "s", copies=_WORKERS, since="0.5", caveat=_SECONDS
    ),
    Entry("lmcache:time_to_lookup", "tier.lookup_time", "histogram", "s", since="0.5", caveat=_SECONDS),
    Entry("lmcache:local_cpu_evict_keys_count_total", "cache.evictions", "counter", "events", since="0.5"),
    Entry("lmcache:local_cpu_evict_failed_count_total", "tier.failures", "counter", "events", since="0.5"),
    Entry(
        "lmcache:local_cache_usage",
        "tier.used_bytes",
        "gauge",
        "B",
        labels=(("tier", "host"),),
        since="0.5",
        caveat="bytes, not a share",
    ),
    Entry("lmcache:local_storage_usage", "tier.used_bytes", "gauge", "B", labels=(("tier", "disk"),), since="0.5"),
    Entry("lmcache:remote_cache_usage", "tier.used_bytes", "gauge", "B", labels=(("tier", "remote"),), since="0.5"),
    Entry(
        "lmcache:request_cache_lifespan",
        "tier.block_reuse_gap",
        "histogram",
        "min",
        scale=60.0,
        since="0.5",
        caveat="minutes, unlike all other times here",
    ),
    Entry("process_start_time_seconds", "process.start_time", "gauge", "s", combine="max"),
)


def detect(names: Collection[str]) -> bool:
    return any(name.startswith("lmcache:") for name in names)


def derive(
    infos: Mapping[str, Sequence[Mapping[str, str]]], values: Mapping[str, float], flags: Mapping[str, str]
) -> Derived:
    """Nothing is said in labels."""
    return Derived()
