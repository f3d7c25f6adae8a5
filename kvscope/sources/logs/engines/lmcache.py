"""LMCache's log, alone or inside an engine's: tokens asked, found, stored and loaded, with size and time."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kvscope.sources.logs.rule import Give, Memory, Rule, grow, number, once

ENGINE = "lmcache"
READ_IN = "LMCache 0.5.6 (v1/cache_engine.py, integration/vllm/vllm_v1_adapter.py, v1/multiprocess)"
BESIDE = ("vllm", "sglang")
LACKS = "how full its tiers are: only its page does"

_GB = float(1 << 30)


def _stored(matched: re.Match[str], memory: Memory) -> Iterable[Give]:
    tokens = number(matched["n"])
    if tokens is not None:
        yield Give("grow", "tier.tokens_out", tokens)
    size, took = number(matched["gb"]), number(matched["ms"])
    if size is not None and took is not None:
        yield Give("grow", "tier.bytes_out", size * _GB)
        yield Give("grow", "tier.store_time", took / 1e3)


def _retrieved(matched: re.Match[str], memory: Memory) -> Iterable[Give]:
    tokens = number(matched["n"])
    if tokens is not None:
        yield Give("grow", "tier.tokens_in", tokens)
    size, took = number(matched["gb"]), number(matched["ms"])
    if size is not None and took is not None:
        yield Give("grow", "tier.bytes_in", size * _GB)
        yield Give("grow", "tier.load_time", took / 1e3)


RULES = (
    Rule(
        "LMCache hit tokens:",
        r"Total tokens:? (?P<total>\d+).*?LMCache hit tokens: (?P<hit>\d+)",
        "0.5.6 integration/vllm/vllm_v1_adapter.py",
        (grow("total", "tier.queries"), grow("hit", "tier.hits")),
        stat=True,
    ),
    Rule(
        "out of total",
        r"Stored (?P<n>\d+) out of total \d+ tokens\. size: (?P<gb>[\d.]+) (?:GB|gb), cost (?P<ms>[\d.]+) ms",
        "0.5.6 v1/cache_engine.py",
        read=_stored,
        stat=True,
    ),
    Rule(
        "Retrieved ",
        r"Retrieved (?P<n>\d+) out of (?:total )?\d+ (?:required |out of total \d+ )?tokens"
        r"(?: \(from \d+ total tokens\))?\. size: (?P<gb>[\d.]+) (?:GB|gb), cost (?P<ms>[\d.]+) ms",
        "0.5.6 v1/cache_engine.py",
        read=_retrieved,
        stat=True,
    ),
    Rule(
        "Stored ",
        r"Stored (?P<n>\d+) tokens in (?P<s>[\d.]+) seconds",
        "0.5.6 v1/multiprocess/modules",
        (grow("n", "tier.tokens_out"), grow("s", "tier.store_time")),
        stat=True,
    ),
    Rule(
        "Retrieved ",
        r"Retrieved (?P<n>\d+) tokens in (?P<s>[\d.]+) seconds",
        "0.5.6 v1/multiprocess/modules",
        (grow("n", "tier.tokens_in"), grow("s", "tier.load_time")),
        stat=True,
    ),
    Rule(
        "can't be retrieved",
        r"The cache block is in the storage, but it can't be retrieved",
        "0.3.6 v1/cache_engine.py",
        (),
        (once("events.tier_trouble"), once("tier.failures")),
        says="LMCache knows of entries that its storage does not give back",
    ),
    Rule(
        "No eviction candidates found",
        r"No eviction candidates found",
        "0.5.6 v1/storage_backend/local_cpu_backend.py",
        (),
        (once("events.tier_trouble"), once("tier.failures")),
        says="LMCache's host memory is full of pinned entries: stores wait",
    ),
    Rule(
        "Failed to allocate memory",
        r"Failed to allocate memory",
        "0.5.6 v1/storage_backend, v1/cache_engine.py",
        (),
        (once("events.tier_trouble"), once("tier.failures")),
        says="LMCache could not allocate memory for entries",
    ),
    Rule(
        "skipping the store",
        r"skipping the store|skipping best-effort offload",
        "0.5.6 v1/gpu_connector, v1/multiprocess",
        (),
        (once("events.tier_trouble"), once("tier.failures")),
    ),
)
