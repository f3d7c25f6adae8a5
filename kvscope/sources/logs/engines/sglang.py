"""SGLang's log: a line for each prefill batch and every forty decode steps, its arguments, memory at the start.

The two stat lines are lists of ``name: value``, whose names come and go with version and model; each is read by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from kvscope.sources.logs.rule import Give, Memory, Rule, number, once, options, setting, tag, word
from probes.sample import labels_of

ENGINE = "sglang"
READ_IN = "SGLang 0.5.23 (PyPI wheel); stat lines also of 0.4.6"
BESIDE = ("dynamo",)
STARTS = (b"server_args=",)
"""What it writes when it starts, every time."""
LACKS = "latencies of requests and preempted tokens: only its page does (--enable-metrics)"

_GB = float(1 << 30)
_PAIR = re.compile(r"([#A-Za-z][\w#./ ()-]*?): ([\d.]+|True|False)(?=,|$|\s)")
_RANK = r"(?:\bDP(?P<dp>\d+)\b)?"


def _pairs(text: str) -> Mapping[str, str]:
    return {name.strip(): value for name, value in _PAIR.findall(text)}


def _gauge(pairs: Mapping[str, str], name: str, metric: str, **labels: str) -> Iterable[Give]:
    value = number(pairs.get(name, ""))
    if value is not None:
        yield Give("gauge", metric, value, labels_of(**labels))


def _pool(pairs: Mapping[str, str]) -> Iterable[Give]:
    """Usage of the pool, and of each pool of a hybrid model; tokens held, and with both what it can hold."""
    full = "full token usage" if "full token usage" in pairs else "token usage"
    yield from _gauge(pairs, full, "kv.usage_ratio")
    held = number(pairs.get("#full token", pairs.get("#token", "")))
    usage = number(pairs.get(full, ""))
    if held is not None:
        yield Give("gauge", "kv.used_tokens", held)
        # The usage is printed with two digits: a nearly empty pool would give a capacity that is far off.
        if usage is not None and usage >= 0.2:
            yield Give("gauge", "kv.capacity_tokens", held / usage)
    if "swa token usage" in pairs or "mamba usage" in pairs:
        yield from _gauge(pairs, full, "kv.pool_usage_ratio", pool="full")
        yield from _gauge(pairs, "swa token usage", "kv.pool_usage_ratio", pool="window")
        yield from _gauge(pairs, "#swa token", "kv.pool_used_tokens", pool="window")
        yield from _gauge(pairs, "mamba usage", "kv.pool_usage_ratio", pool="state")


def _rank(pairs: re.Match[str]) -> Iterable[Give]:
    if pairs["dp"] is not None:
        yield Give("who", "", 0.0, (), f"DP{pairs['dp']}")


def _decode(matched: re.Match[str], memory: Memory) -> Iterable[Give]:
    pairs = _pairs(matched["all"])
    yield from _rank(matched)
    yield from _pool(pairs)
    yield from _gauge(pairs, "#running-req", "sched.running")
    yield from _gauge(pairs, "#queue-req", "sched.waiting")
    generated = number(pairs.get("gen throughput (token/s)", ""))
    if generated is not None:
        yield Give("rate", "tokens.generated", generated)
    if pairs.get("cuda graph") in ("True", "False"):
        # The device's graph, as of this very step: a batch too large for any shows here.
        yield Give("gauge", "config.graphs", float(pairs["cuda graph"] == "True"))
    length, share = number(pairs.get("accept len", "")), number(pairs.get("accept rate", ""))
    if generated and length and length > 1 and share:
        yield Give("rate", "spec.drafts", generated / length)
        yield Give("rate", "spec.accepted_tokens", generated * (length - 1) / length)
        yield Give("rate", "spec.draft_tokens", generated * (length - 1) / length / share)
    yield from _gauge(pairs, "#prealloc-req", "disagg.queue", stage="preallocating")
    yield from _gauge(pairs, "#transfer-req", "disagg.queue", stage="transferring")
    yield from _gauge(pairs, "cpu token usage", "tier.usage_ratio", tier="host")


def _prefill(matched: re.Match[str], memory: Memory) -> Iterable[Give]:
    pairs = _pairs(matched["all"])
    yield from _rank(matched)
    yield from _pool(pairs)
    new, cached = number(pairs.get("#new-token", "")), number(pairs.get("#cached-token", ""))
    running, joined = number(pairs.get("#running-req", "")), number(pairs.get("#new-seq", ""))
    if new is not None:
        yield Give("grow", "tokens.prefilled", new)
    if new is not None and cached is not None:
        yield Give("grow", "tokens.prompt", new + cached)
        yield Give("grow", "prefix.queries", new + cached)
        yield Give("grow", "prefix.hits", cached)
    if running is not None:
        yield Give("gauge", "sched.running", running + (joined or 0.0))
    yield from _gauge(pairs, "#queue-req", "sched.waiting")
    yield from _gauge(pairs, "#bootstrap-req", "disagg.queue", stage="bootstrapping")
    yield from _gauge(pairs, "#inflight-req", "disagg.queue", stage="inflight")


def _arguments(matched: re.Match[str], memory: Memory) -> Iterable[Give]:
    return options(matched["all"])


def _retracted(matched: re.Match[str], memory: Memory) -> Iterable[Give]:
    count = number(matched["n"] or "1")
    yield Give("grow", "sched.preemptions", count or 1.0)
    yield once("events.kv_full")


RULES = (
    Rule(
        "Decode batch",
        _RANK + r".*Decode batch(?: \[\d+\])?[.,] (?P<all>.*)",
        "0.5.23 managers/scheduler_components/metrics_reporter.py; 0.4.6 managers/scheduler_metrics_mixin.py",
        read=_decode,
        stat=True,
    ),
    Rule(
        "Prefill batch",
        _RANK + r".*Prefill batch(?: \[\d+\])?[.,] (?P<all>.*)",
        "0.5.23 managers/scheduler_components/metrics_reporter.py; 0.4.6 managers/scheduler_metrics_mixin.py",
        read=_prefill,
        stat=True,
    ),
    Rule("server_args=", r"server_args=(?P<all>.*)", "0.5.23 entrypoints/engine.py", read=_arguments),
    Rule("max_total_num_tokens=", r"(?P<all>max_total_num_tokens=.*)", "0.5.23 managers/scheduler.py", read=_arguments),
    Rule(
        "KV Cache is allocated",
        r"(?<!draft )KV Cache is allocated\. (?:dtype: (?P<dtype>[\w.]+), )?#tokens: (?P<tokens>\d+)",
        "0.5.23 mem_cache/memory_pool.py",
        (setting("tokens", "kv.capacity_tokens"), word("dtype", "kv_cache_dtype")),
    ),
    Rule(
        "KV Cache is allocated",
        r"K size: (?P<k>[\d.]+) GB, V size: (?P<v>[\d.]+) GB",
        "0.5.23 mem_cache/memory_pool.py",
        read=lambda matched, memory: _sum_gb(matched["k"], matched["v"]),
    ),
    Rule(
        "KV Cache is allocated",
        r"KV size: (?P<kv>[\d.]+) GB",
        "0.5.23 mem_cache/memory_pool.py (latent attention)",
        (setting("kv", "kv.reserved_bytes", _GB),),
    ),
    Rule(
        "Mamba Cache is allocated",
        r"max_mamba_cache_size: (?P<n>\d+)",
        "0.5.23 mem_cache/memory_pool.py",
        (setting("n", "config.state_slots"),),
    ),
    Rule(
        "Load weight end.",
        r"Load weight end\..*?mem usage=(?P<gb>[\d.]+) GB",
        "0.5.23 model_executor/model_runner.py",
        (setting("gb", "config.weights_bytes", _GB),),
    ),
    Rule(
        "graph end.",
        r"Capture (?:decode |target[\w ]*)?(?:cuda|CUDA|hip) graph end\..*?mem usage=(?P<gb>[\d.]+) GB",
        "0.5.23 model_executor/model_runner_components/cuda_graph_setup.py",
        (setting("gb", "config.graph_bytes", _GB),),
        (Give("setting", "config.graphs", 1.0),),
    ),
    Rule(
        "attention backend",
        r"(?:Use|Using) (?P<name>\w+) (?:as )?attention backend",
        "0.4.6 model_executor/model_runner.py",
        (tag("name", "attention"),),
        common=True,
    ),
    Rule(
        "KV cache pool is full",
        r"KV cache pool is full\. Retract requests\. #retracted_reqs: (?P<n>\d+)",
        "0.5.23 managers/scheduler.py",
        read=_retracted,
        says="the KV pool ran full and requests were retracted",
    ),
    Rule(
        "Retract requests",
        r"(?:Decode|out of memory happened)[^\n]*Retract requests\. #retracted_reqs: (?P<n>\d+)",
        "0.4.6 managers/scheduler.py",
        read=_retracted,
        says="the KV pool ran full and requests were retracted",
    ),
    Rule(
        "under host memory pressure",
        r"under host memory pressure",
        "0.5.23 mem_cache/unified_radix_cache.py",
        (),
        (once("events.tier_trouble"),),
        says="the host tier had no room: KV was dropped without a copy",
    ),
    Rule(
        "dropped without backup",
        r"dropped without backup",
        "0.5.23 mem_cache/unified_radix_cache.py",
        (),
        (once("events.tier_trouble"),),
    ),
    Rule(
        "HiCache prefetch declined",
        r"HiCache prefetch declined",
        "0.5.23 mem_cache/unified_radix_cache.py",
        (),
        (once("events.tier_trouble"),),
    ),
    Rule(
        "alling back to",
        r"(?i)(?:triton|attention|kernel|fp8|sparse|graph|indexer)[^\n]*falling back to"
        r"|falling back to[^\n]*(?:triton|torch|legacy)",
        "0.5.23 layers/attention",
        (),
        (once("events.kernel_fallback"),),
        common=True,
        says="the engine said that a slower kernel steps in: see its log for 'falling back'",
    ),
    Rule(
        "CUDA graph",
        r"Disable (?:decode|prefill) CUDA graph because",
        "0.5.23 model_executor/model_runner_components/cuda_graph_setup.py",
        (),
        (once("events.graph_off"),),
    ),
    Rule(
        "out of memory",
        r"(?i)\b(?:CUDA|HIP|XPU|NPU) out of memory|OutOfMemoryError|Prefill out of memory",
        "PyTorch's own words",
        (),
        (once("events.oom"),),
        common=True,
        says="device memory ran out",
    ),
    Rule(
        "scaling factors",
        r"(?i)no kv cache scaling factors|scaling factors? provided\. Defaulting to",
        "0.5.23 model_executor/model_runner.py",
        (),
        (once("events.scale_missing"),),
        common=True,
    ),
)


def _sum_gb(first: str, second: str) -> Iterable[Give]:
    keys, values = number(first), number(second)
    if keys is not None and values is not None:
        yield Give("setting", "kv.reserved_bytes", (keys + values) * _GB)
