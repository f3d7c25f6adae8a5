"""Dynamo's log: requests that workers received and completed, what its KV router chose and why."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kvscope.sources.logs.rule import Give, Memory, Rule, once

ENGINE = "dynamo"
READ_IN = (
    "Dynamo 1.6.1 (lib/runtime/src/pipeline/network/ingress, lib/llm/src/kv_router) by running it, and its sources"
)
BESIDE = ()
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
        r"[Ss]elected worker: (?:worker_type=\w+, )?worker_id=(?P<worker>\w{1,40})",
        "1.6.1 lib/llm/src/kv_router/scheduler.rs",
        read=_routed,
        stat=True,
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
