"""LMDeploy's log: the stat line of every interval, its cache's configuration, warnings of both its engines."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kvscope.sources.logs.rule import Give, Memory, Rule, gauge, number, once, options, rate, who

ENGINE = "lmdeploy"
READ_IN = "LMDeploy 1263d5c (lmdeploy/metrics/loggers.py, pytorch/engine, src/turbomind/engine)"
BESIDE = ()
LACKS = "latencies of requests: only its page does (--enable-metrics)"


def _hits(matched: re.Match[str], memory: Memory) -> Iterable[Give]:
    hit, prompt = number(matched["hit"] or ""), number(matched["prompt"])
    if hit is not None and prompt is not None:
        yield Give("rate", "prefix.queries", prompt)
        yield Give("rate", "prefix.hits", prompt * hit / 100)


def _drafted(matched: re.Match[str], memory: Memory) -> Iterable[Give]:
    length, accepted, drafted = (number(matched[group]) for group in ("length", "accepted", "drafted"))
    if length is None or accepted is None or drafted is None:
        return
    yield Give("grow", "spec.accepted_tokens", accepted)
    yield Give("grow", "spec.draft_tokens", drafted)
    if length > 1:
        yield Give("grow", "spec.drafts", accepted / (length - 1))


def _block(matched: re.Match[str], memory: Memory) -> Iterable[Give]:
    """A block's size is told before their number, and means nothing to a reader without it."""
    memory["block_mb"] = matched["mb"]
    return ()


def _blocks(matched: re.Match[str], memory: Memory) -> Iterable[Give]:
    count, size = number(matched["n"]), number(str(memory.get("block_mb", "")))
    if count:
        yield Give("setting", "kv.capacity_blocks", count)
        if size:
            yield Give("setting", "kv.reserved_bytes", count * size * (1 << 20))


RULES = (
    Rule(
        "Avg thr (in/out):",
        r"(?: DP(?P<dp>\d+)\] )?Avg thr \(in/out\): (?P<prompt>[\d.]+) / (?P<gen>[\d.]+) tokens/s, .*?"
        r"Engine \(running/waiting\): (?P<running>\d+) / (?P<waiting>\d+), KV cache: (?P<usage>[\d.]+)%"
        r"(?:, Prefix cache hit rate: (?P<hit>[\d.]+)%)?",
        "1263d5c lmdeploy/metrics/loggers.py",
        (
            who("dp"),
            rate("prompt", "tokens.prompt"),
            rate("gen", "tokens.generated"),
            gauge("running", "sched.running"),
            gauge("waiting", "sched.waiting"),
            gauge("usage", "kv.usage_ratio", 0.01),
        ),
        read=_hits,
        stat=True,
        every_s=10.0,
    ),
    Rule(
        "SpecDecoding metrics: Draft acceptance",
        r"Mean acceptance length: (?P<length>[\d.]+), "
        r"Accepted: (?P<accepted>\d+) tokens, Drafted: (?P<drafted>\d+) tokens",
        "1263d5c lmdeploy/metrics/loggers.py",
        read=_drafted,
        stat=True,
    ),
    Rule(
        "CacheConfig(",
        r"CacheConfig\((?P<all>.*)",
        "1263d5c lmdeploy/pytorch/engine/executor/base.py",
        read=lambda matched, memory: options(matched["all"]),
    ),
    Rule(
        "EngineConfig(",
        r"EngineConfig\((?P<all>.*)",
        "1263d5c lmdeploy/messages.py (PytorchEngineConfig, TurbomindEngineConfig)",
        read=lambda matched, memory: options(matched["all"]),
    ),
    Rule(
        "no next prefill running request",
        r"no next prefill running request, Maybe cache is full",
        "1263d5c lmdeploy/pytorch/engine/engine_loop.py",
        (),
        (once("events.kv_full"),),
        says="no prompt could be admitted: the cache may be full",
    ),
    Rule(
        "cache out of memory",
        r"cache out of memory, no request can be admitted",
        "1263d5c src/turbomind/engine/engine.cc",
        (),
        (once("events.kv_full"), once("requests.errors")),
        says="a request failed because the KV pool could not hold it",
    ),
    Rule(
        "[BlockManager] block_size",
        r"\[BlockManager\] block_size = (?P<mb>[\d.]+) MB",
        "0.6 to 0.10 src/turbomind/models/llama/BlockManager.cc",
        read=_block,
    ),
    Rule(
        "[BlockManager] max_block_count",
        r"\[BlockManager\] max_block_count = (?P<n>\d+)",
        "0.6 to 0.10 src/turbomind/models/llama/BlockManager.cc",
        read=_blocks,
    ),
    Rule(
        "[SegMgr] prefix caching is enabled",
        r"\[SegMgr\] prefix caching is enabled",
        "0.6 to 0.10 src/turbomind/models/llama/SequenceManager.cc",
        (),
        (Give("setting", "config.prefix_caching", 1.0),),
    ),
    Rule(
        "Prefix caching is not available",
        r"Prefix caching is not available|prefix caching is not supported",
        "1263d5c lmdeploy/pytorch/config.py",
        (),
        (Give("setting", "config.prefix_caching", 0.0), once("events.prefix_caching_off")),
    ),
    Rule(
        "out of memory",
        r"(?i)\b(?:CUDA|NPU) out of memory|OutOfMemoryError",
        "PyTorch's own words",
        (),
        (once("events.oom"),),
        common=True,
        says="device memory ran out",
    ),
)
