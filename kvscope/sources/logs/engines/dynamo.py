"""Dynamo's log: requests that workers received and completed, what its KV router chose and why."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kvscope.sources.logs.rule import Give, Memory, Rule, grow, number, once

ENGINE = "dynamo"
READ_IN = (
    "Dynamo 1.6.1 (lib/runtime/src/pipeline/network/ingress, lib/llm/src/kv_router) by running it, and its sources"
)
BESIDE = ()
MARKS = (b"dynamo_llm::", b"dynamo_runtime::", b"llm::block_manager::", b" = 1.0 * prefill_blocks")
"""Text that no other program writes."""
LACKS = "tokens, KV usage and latencies: the page of each worker and of the frontend does"

_MOST = 4096


def _received(matched: re.Match[str], memory: Memory) -> Iterable[Give]:
    running: set[str] = memory.setdefault("running", set())
    if len(running) < _MOST:
        running.add(matched["id"])
    yield Give("gauge", "sched.running", float(len(running)))


def _completed(matched: re.Match[str], memory: Memory) -> Iterable[Give]:
    running: set[str] = memory.setdefault("running", set())
    running.discard(matched["id"])
    yield Give("gauge", "sched.running", float(len(running)))
    yield Give("grow", "requests.finished", 1.0)


def _routed(matched: re.Match[str], memory: Memory) -> Iterable[Give]:
    yield Give("grow", "router.requests", 1.0, (("worker", matched["worker"]),))


def _tiers(matched: re.Match[str], memory: Memory) -> Iterable[Give]:
    device, host, disk, size = (number(matched[name]) or 0.0 for name in ("device", "host", "disk", "size"))
    yield Give("gauge", "kv.capacity_blocks", device)
    yield Give("setting", "kv.reserved_bytes", device * size)
    for tier, blocks in (("host", host), ("disk", disk)):
        if blocks:
            yield Give("gauge", "tier.capacity_bytes", blocks * size, (("tier", tier),))


RULES = (
    Rule(
        "request received",
        r"push_handler: request received.*?request_id=\"?(?P<id>[0-9a-f-]{8,40})",
        "1.6.1 lib/runtime/src/pipeline/network/ingress/push_handler.rs",
        read=_received,
        stat=True,
    ),
    Rule(
        "request completed",
        r"push_handler: request completed.*?request_id=\"?(?P<id>[0-9a-f-]{8,40})",
        "1.6.1 lib/runtime/src/pipeline/network/ingress/push_handler.rs",
        read=_completed,
        stat=True,
    ),
    Rule(
        "elected worker:",
        r"[Ss]elected worker: (?:worker_type=\w+, )?(?:worker_id=)?(?P<worker>\w{1,40})",
        "1.6.1 and 0.5 lib/llm/src/kv_router/scheduler.rs",
        read=_routed,
        stat=True,
    ),
    Rule(
        "request set to finish",
        r"cached_gpu_tokens: (?P<device>\d+); cached_host_tokens: (?P<host>\d+); cached_disk_tokens: (?P<disk>\d+)",
        "0.7 lib/bindings/python/rust/llm/block_manager/vllm/connector/leader/slot.rs",
        (
            grow("host", "tier.tokens_in", tier="host"),
            grow("disk", "tier.tokens_in", tier="disk"),
        ),
        (once("requests.finished"),),
        stat=True,
    ),
    Rule(
        "KVBM Leader block allocation",
        r"G1 \(GPU\)=(?P<device>\d+) blocks, G2 \(Host\)=(?P<host>\d+) blocks, G3 \(Disk\)=(?P<disk>\d+) blocks, "
        r"bytes_per_block=(?P<size>\d+)",
        "1.0 lib/bindings/kvbm/src/block_manager/distributed/leader.rs",
        read=_tiers,
    ),
    Rule(
        "no endpoints found",
        r"(?i)no (?:endpoints|workers|responders) (?:found|available)",
        "1.6.1 lib/llm/src/kv_router/scheduler.rs",
        (),
        (once("requests.errors"),),
        says="the router found no worker",
    ),
)
