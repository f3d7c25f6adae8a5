"""Mooncake's store: the master's page, and what its clients write on their engine's; read in its source."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kvscope.sources.mapping import Derived, Entry

ENGINE = "mooncake"
ROLE = "cache"
EXPECTS = "master_allocated_bytes, or names starting with mooncake_"
IDENTITY: dict[str, str] = {}
VERSION_PATH = ""
FLAGS = ()

_CLIENT = "a page of a client"
_MASTER = "the master's page"
_SSD = "a client with an SSD tier"
_MICRO = "microseconds, with or without a suffix that says so"
_UNDERSCORE = "the trailing underscore is part of the name"


def _gauge(name: str, metric: str, tier: str) -> Entry:
    return Entry(name, metric, "gauge", "B", labels=(("tier", tier),), condition=_MASTER)


def _bytes(name: str, metric: str, condition: str) -> Entry:
    return Entry(name, metric, "counter", "B", condition=condition)


def _time(name: str, metric: str, condition: str) -> Entry:
    return Entry(f"{name}_sum", metric, "counter", "us", scale=1e-6, condition=condition, caveat=_MICRO)


MAP = (
    _gauge("master_allocated_bytes", "tier.used_bytes", "host"),
    _gauge("master_total_capacity_bytes", "tier.capacity_bytes", "host"),
    _gauge("master_allocated_file_size_bytes", "tier.used_bytes", "disk"),
    Entry("master_evicted_key_count", "cache.evictions", "counter", "events", condition=_MASTER),
    Entry("master_promotion_in_flight", "tier.pending", "gauge", "transfers", condition=_MASTER),
    _bytes("mem_cache_hit_bytes_total", "tier.bytes_in", _MASTER),
    _bytes("file_cache_hit_bytes_total", "tier.bytes_in", _MASTER),
    Entry("mem_cache_hit_nums_", "tier.blocks_in", "counter", "blocks", condition=_MASTER, caveat=_UNDERSCORE),
    Entry("file_cache_hit_nums_", "tier.blocks_in", "counter", "blocks", condition=_MASTER, caveat=_UNDERSCORE),
    _bytes("mooncake_transfer_read_bytes", "tier.bytes_in", _CLIENT),
    _bytes("mooncake_transfer_write_bytes", "tier.bytes_out", _CLIENT),
    _time("mooncake_transfer_get_latency", "tier.load_time", _CLIENT),
    _time("mooncake_transfer_batch_get_latency", "tier.load_time", _CLIENT),
    _time("mooncake_transfer_put_latency", "tier.store_time", _CLIENT),
    _time("mooncake_transfer_batch_put_latency", "tier.store_time", _CLIENT),
    _time("mooncake_ssd_read_latency_us", "tier.load_time", _SSD),
    _time("mooncake_ssd_write_latency_us", "tier.store_time", _SSD),
)


def detect(names: Collection[str]) -> bool:
    return "master_allocated_bytes" in names or any(name.startswith("mooncake_") for name in names)


def derive(
    infos: Mapping[str, Sequence[Mapping[str, str]]], values: Mapping[str, float], flags: Mapping[str, str]
) -> Derived:
    """Nothing is said in labels."""
    return Derived()
