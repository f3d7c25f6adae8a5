"""TensorRT-LLM's log: a line of every iteration, the KV pool at the start."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kvscope.sources.logs.rule import Give, Memory, Rule, number, once, options, setting

ENGINE = "tensorrt-llm"
READ_IN = "TensorRT-LLM 1.3 (_torch/pyexecutor/py_executor.py, cpp/batch_manager/kvCacheManager.cpp) and 0.17"
BESIDE = ("dynamo",)
LACKS = "queues and latencies: its page or /perf_metrics does (return_perf_metrics)"

_GIB = float(1 << 30)


_FIELDS = {
    "host": r"(?:host_step_time|elapsed_time) = ([\d.]+)(ms|s)",
    "device": r"prev_device_step_time = ([\d.]+)(ms|s)",
    "running": r"num_scheduled_requests(?: =|:) (\d+)",
    "usage": r"kv_cache_util = ([\d.]+)",
    "ctx": r"'num_ctx_tokens': (\d+)",
    "gen": r"'num_generation_tokens': (\d+)",
}


def _iteration(matched: re.Match[str], memory: Memory) -> Iterable[Give]:
    """Read an iteration's fields by name: they came, went and changed places from release to release."""
    found: dict[str, float] = {}
    for name, pattern in _FIELDS.items():
        one = re.search(pattern, matched["all"])
        value = number(one[1]) if one is not None else None
        if one is not None and value is not None:
            found[name] = value / 1e3 if one.re.groups > 1 and one[2] == "ms" else value
    yield Give("grow", "batch.steps", 1.0)
    step = max(found.get("host", 0.0), found.get("device", 0.0))
    if step > 0:
        yield Give("grow", "time.step", step)
        yield Give("each", "latency.step", step)
    for name, kind, metric in (
        ("running", "gauge", "sched.running"),
        ("usage", "gauge", "kv.usage_ratio"),
        ("ctx", "grow", "tokens.prefilled"),
        ("gen", "grow", "tokens.generated"),
    ):
        if name in found:
            yield Give(kind, metric, found[name])  # type: ignore[arg-type]
    if matched["rank"] != "0":
        yield Give("who", "", 0.0, (), f"rank {matched['rank']}")


_STATISTICS = {
    "Scheduled Requests": ("gauge", "sched.running"),
    "Waiting Requests": ("gauge", "sched.waiting"),
    "Paused Requests": ("gauge", "sched.paused"),
    "Max Request Count": ("gauge", "sched.max_running"),
    "Used KV cache blocks": ("gauge", "kv.used_blocks"),
    "Max KV cache blocks": ("gauge", "kv.capacity_blocks"),
    "Tokens per KV cache block": ("gauge", "kv.block_size"),
    "Total Context Tokens": ("grow", "tokens.prefilled"),
    "Generation Requests": ("grow", "tokens.generated"),
}


def _statistics(matched: re.Match[str], memory: Memory) -> Iterable[Give]:
    """Read the batch manager's line of JSON, one an iteration: every request that decodes gets one token."""
    pairs = dict(re.findall(r'"([A-Za-z ]+)":(\d+)', matched["all"]))
    known = {name: value for name, text in pairs.items() if (value := number(text)) is not None}
    yield Give("grow", "batch.steps", 1.0)
    for name, (kind, metric) in _STATISTICS.items():
        if name in known:
            yield Give(kind, metric, known[name])  # type: ignore[arg-type]
    used, most = known.get("Used KV cache blocks"), known.get("Max KV cache blocks")
    if used is not None and most:
        yield Give("gauge", "kv.usage_ratio", used / most)
        if size := known.get("Tokens per KV cache block"):
            yield Give("gauge", "kv.capacity_tokens", most * size)
            yield Give("gauge", "kv.used_tokens", used * size)


def _pool(matched: re.Match[str], memory: Memory) -> Iterable[Give]:
    block, primary = number(matched["block"]), number(matched["primary"])
    if block and primary:
        yield Give("setting", "kv.block_size", block)
        yield Give("setting", "kv.capacity_blocks", primary)
        yield Give("setting", "kv.capacity_tokens", block * primary)
    longest = number(matched["longest"] or "")
    if longest:
        yield Give("setting", "config.max_context", longest)


RULES = (
    Rule(
        "global_rank = ",
        r"(?P<all>iter = \d+, global_rank = (?P<rank>\d+).*(?:host_step_time|elapsed_time|num_scheduled_requests).*)",
        "0.19 to 1.3 _torch/pyexecutor/py_executor.py (print_iter_log)",
        read=_iteration,
        stat=True,
    ),
    Rule(
        '"Iteration Counter":',
        r"(?P<all>\{.*\"Iteration Counter\":.*)",
        "0.7 to 1.0 of tensorrtllm_backend, --log-verbose",
        read=_statistics,
        stat=True,
    ),
    Rule(
        "Max KV cache blocks per sequence",
        r"tokens per block=(?P<block>\d+), primary blocks=(?P<primary>\d+)(?:.*?max sequence length=(?P<longest>\d+))?",
        "1.3 cpp/batch_manager/kvCacheManager.cpp",
        read=_pool,
    ),
    Rule(
        "for max tokens in paged KV cache",
        r"Allocated (?P<gib>[\d.]+) GiB for max tokens in paged KV cache \((?P<tokens>\d+)\)",
        "0.17 and 1.3 cpp/batch_manager/kvCacheManager.cpp",
        (setting("gib", "kv.reserved_bytes", _GIB), setting("tokens", "kv.capacity_tokens")),
    ),
    Rule(
        "KV cache primary pool:",
        r"Number of blocks in KV cache primary pool: (?P<n>\d+)",
        "0.13 cpp/batch_manager/kvCacheManager.cpp",
        (setting("n", "kv.capacity_blocks"),),
    ),
    Rule(
        "for k/v cache",
        r"Allocate (?P<n>\d+) bytes for k/v cache",
        "0.8 cpp/batch_manager/kvCacheManager.cpp",
        (setting("n", "kv.reserved_bytes"),),
    ),
    Rule(
        "tokens in paged KV cache",
        r"Using (?P<n>\d+) tokens in paged KV cache",
        "0.5 to 0.8 cpp/batch_manager/kvCacheManager.cpp",
        (setting("n", "kv.capacity_tokens"),),
    ),
    Rule(
        "TRTGptModel maxBatchSize",
        r"TRTGptModel maxBatchSize: (?P<n>\d+)",
        "0.8 to 0.21 cpp/batch_manager/trtGptModel.h",
        (setting("n", "sched.max_running"),),
    ),
    Rule(
        "TRTGptModel maxNumTokens",
        r"TRTGptModel maxNumTokens: (?P<n>\d+)",
        "0.10 to 0.21 cpp/batch_manager/trtGptModel.h",
        (setting("n", "config.max_batched_tokens"),),
    ),
    Rule(
        "TRTGptModel maxSequenceLen",
        r"TRTGptModel maxSequenceLen: (?P<n>\d+)",
        "0.10 to 0.21 cpp/batch_manager/trtGptModel.h",
        (setting("n", "config.max_context"),),
    ),
    Rule(
        "Number of tokens per block",
        r"Number of tokens per block: (?P<n>\d+)",
        "0.17 cpp/batch_manager/kvCacheManager.cpp",
        (setting("n", "kv.block_size"),),
    ),
    Rule(
        "KV cache block reuse is disabled",
        r"KV cache block reuse is disabled",
        "0.17 cpp/batch_manager/trtGptModelInflightBatching.cpp",
        (),
        (Give("setting", "config.prefix_caching", 0.0), once("events.prefix_caching_off")),
    ),
    Rule(
        "max_seq_len=",
        r"(?P<all>max_seq_len=\d+, max_num_requests=.*)",
        "1.3 _torch/pyexecutor/py_executor_creator.py",
        read=lambda matched, memory: options(matched["all"]),
    ),
    Rule(
        "out of memory",
        r"(?i)\b(?:CUDA|HIP) out of memory|OutOfMemoryError|cudaMalloc[^\n]*out of memory",
        "PyTorch's own words",
        (),
        (once("events.oom"),),
        common=True,
        says="device memory ran out",
    ),
)
