"""TensorRT-LLM's log: a line of every iteration, the KV pool at the start."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kvscope.sources.logs.rule import Give, Memory, Rule, gauge, number, once, options, setting

ENGINE = "tensorrt-llm"
READ_IN = "TensorRT-LLM 1.3 (_torch/pyexecutor/py_executor.py, cpp/batch_manager/kvCacheManager.cpp) and 0.17"
BESIDE = ("dynamo",)
LACKS = "queues and latencies: its page or /perf_metrics does (return_perf_metrics)"

_GIB = float(1 << 30)


def _iteration(matched: re.Match[str], memory: Memory) -> Iterable[Give]:
    host, device = number(matched["host"]), number(matched["device"] or "")
    step = max((value for value in (host, device) if value is not None), default=None)
    yield Give("grow", "batch.steps", 1.0)
    if step is not None:
        yield Give("grow", "time.step", step / 1e3)
        yield Give("each", "latency.step", step / 1e3)
    prompt, generated = number(matched["ctx"] or ""), number(matched["gen"] or "")
    if prompt is not None:
        yield Give("grow", "tokens.prefilled", prompt)
    if generated is not None:
        yield Give("grow", "tokens.generated", generated)
    if matched["rank"] is not None and matched["rank"] != "0":
        yield Give("who", "", 0.0, (), f"rank {matched['rank']}")


def _pool(matched: re.Match[str], memory: Memory) -> Iterable[Give]:
    block, primary = number(matched["block"]), number(matched["primary"])
    if block and primary:
        yield Give("setting", "kv.block_size", block)
        yield Give("setting", "kv.capacity_blocks", primary)
        yield Give("setting", "kv.capacity_tokens", block * primary)
    longest = number(matched["longest"])
    if longest:
        yield Give("setting", "config.max_context", longest)


RULES = (
    Rule(
        "num_scheduled_requests = ",
        r"iter = \d+, global_rank = (?P<rank>\d+).*?num_scheduled_requests = (?P<running>\d+)"
        r"(?:, kv_cache_util = (?P<usage>[\d.]+))?.*?host_step_time = (?P<host>[\d.]+)ms"
        r"(?:, prev_device_step_time = (?:(?P<device>[\d.]+)ms|N/A))?"
        r"(?:.*?'num_ctx_tokens': (?P<ctx>\d+))?(?:.*?'num_generation_tokens': (?P<gen>\d+))?",
        "1.3 _torch/pyexecutor/py_executor.py",
        (gauge("running", "sched.running"), gauge("usage", "kv.usage_ratio")),
        read=_iteration,
        stat=True,
    ),
    Rule(
        "Max KV cache blocks per sequence",
        r"tokens per block=(?P<block>\d+), primary blocks=(?P<primary>\d+).*?max sequence length=(?P<longest>\d+)",
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
