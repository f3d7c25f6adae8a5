"""Mooncake's master log: its metrics line of every ten seconds, evictions, allocations that failed."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kvscope.sources.logs.rule import Give, Memory, Rule, number, once

ENGINE = "mooncake"
READ_IN = "Mooncake 3b5a594 (mooncake-store/src/master_admin_service.cpp, master_metric_manager.cpp)"
BESIDE = ()
LACKS = "hits by token: the engines' pages do"

_UNITS = {"B": 0, "KB": 10, "MB": 20, "GB": 30, "TB": 40}
_SIZE = r"([\d.]+) ([KMGT]?B)"


def _bytes(value: str, unit: str) -> float:
    return (number(value) or 0.0) * float(1 << _UNITS.get(unit, 0))


def _metrics(matched: re.Match[str], memory: Memory) -> Iterable[Give]:
    text = matched["all"]
    # One store only, before there were two.
    first = "Mem Storage" if "Mem Storage" in text else r"(?<!SSD )Storage"
    for name, tier in ((first, "host"), ("SSD Storage", "disk")):
        found = re.search(rf"{name}: {_SIZE} / {_SIZE}", text)
        if found is None:
            continue
        used, capacity = _bytes(found[1], found[2]), _bytes(found[3], found[4])
        labels = (("tier", tier),)
        if capacity > 0:
            yield Give("gauge", "tier.used_bytes", used, labels)
            yield Give("gauge", "tier.capacity_bytes", capacity, labels)
            yield Give("gauge", "tier.usage_ratio", used / capacity, labels)
    for pattern, metric in (
        (r"\| Eviction: Success/Attempts=\d+/\d+, (?:AllocFail=\d+, PartialAlloc=\d+, )?keys=(\d+)", "cache.evictions"),
        (r"AllocFail=(\d+)", "tier.failures"),
    ):
        found = re.search(pattern, text)
        total = number(found[1]) if found else None
        if total is not None:
            before = memory.get(metric, 0.0)
            memory[metric] = total
            yield Give("grow", metric, max(0.0, total - before))


RULES = (
    Rule(
        "Master Admin Metrics:",
        r"Master Admin Metrics: role=(?P<all>.*)",
        "3b5a594 mooncake-store/src/master_admin_service.cpp",
        read=_metrics,
        stat=True,
    ),
    Rule(
        "Master Metrics:",
        r"Master Metrics: (?P<all>.*)",
        "0.3.6 mooncake-store/src/rpc_service.cpp",
        read=_metrics,
        stat=True,
    ),
    Rule(
        "put operation",
        r"(?i)failed to (?:start|end|revoke) put operation: \S",
        "0.3.6 mooncake-store/src/client.cpp",
        (),
        (once("events.tier_trouble"), once("tier.failures")),
        says="Mooncake could not store an object",
    ),
    Rule(
        "Transfer failed for ",
        r"Transfer failed for (?:key|batch)",
        "0.3.6 mooncake-store/src/client.cpp, transfer_task.cpp",
        (),
        (once("events.tier_trouble"), once("tier.failures")),
        says="Mooncake could not move an object",
    ),
    Rule(
        "Cannot make connection for endpoint",
        r"Cannot make connection for endpoint",
        "0.3.6 mooncake-transfer-engine/src/transport/rdma_transport/worker_pool.cpp",
        (),
        (once("events.tier_trouble"),),
        says="Mooncake cannot reach one of its machines",
    ),
)
