"""Ollama's log: the MLX runner's prefix cache, peak memory, and what it runs llama.cpp with.

Its llama-server children write llama.cpp's own lines into the same log: those are read by that engine's rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

from kvscope.sources.logs.rule import Give, Memory, Read, Rule, number, once, options, setting

ENGINE = "ollama"
READ_IN = "Ollama fb3076099 (x/mlxrunner/prefix_cache.go, pipeline.go, server/sched.go)"
BESIDE = ()
MARKS = (b" ollama[", b'msg="llama runner started', b"source=sched.go:")
"""Text that no other program writes: by it the log is Ollama's, though the lines that are read are llama.cpp's."""
LACKS = "queues, and latencies of the MLX runner: its API's answers carry them"

_SIZES = {
    "B": 1.0,
    "KB": 1e3,
    "MB": 1e6,
    "GB": 1e9,
    "TB": 1e12,
    "KiB": 1024.0,
    "MiB": float(1 << 20),
    "GiB": float(1 << 30),
}


def _prefix(matched: re.Match[str], memory: Memory) -> Iterable[Give]:
    total, shared, cached, left = (number(matched[group]) for group in ("total", "matched", "cached", "left"))
    if total is None or shared is None or cached is None or left is None:
        return
    yield Give("grow", "tokens.prompt", total)
    yield Give("grow", "tokens.prefilled", left)
    yield Give("grow", "prefix.queries", total)
    yield Give("grow", "prefix.matched", shared)
    yield Give("grow", "prefix.hits", cached)
    yield Give("each", "request.tokens_in", total)
    yield Give("each", "request.tokens_computed", left)


def _memory(matched: re.Match[str], memory: Memory) -> Iterable[Give]:
    value = number(matched["n"])
    if value is not None:
        yield Give("gauge", "gpu.mem_used", value * _SIZES.get(matched["unit"], 1.0), (("gpu", "0"),))


def _done(matched: re.Match[str], memory: Memory) -> Iterable[Give]:
    fields = dict(re.findall(r"(\w+)=([\d.]+)", matched["all"]))
    tokens, speed = number(fields.get("tokens", "")), number(fields.get("tgTPS", ""))
    yield Give("grow", "requests.finished", 1.0)
    if tokens is not None:
        yield Give("grow", "tokens.generated", tokens)
        yield Give("each", "request.tokens_out", tokens)
    if tokens is not None and speed:
        yield Give("grow", "time.decode_requests", tokens / speed)
        yield Give("each", "latency.decode_time", tokens / speed)
        yield Give("each", "latency.tpot", 1.0 / speed)


def _placed(metric: str) -> Read:
    """Add up what lies on the accelerators: a line a device, and the host's among them."""

    def read(matched: re.Match[str], memory: Memory) -> Iterable[Give]:
        value = number(matched["n"])
        if value is not None and matched["device"] != "CPU":
            parts: dict[str, float] = memory.setdefault(metric, {})
            parts[matched["device"]] = value * _SIZES.get(matched["unit"], 1.0)
            yield Give("setting", metric, sum(parts.values()))

    return read


_SIZE = r"device=(?P<device>\w{1,20}) size=\"?(?P<n>[\d.]+)\s*(?P<unit>[KMGT]?i?B)"
_DEVICE = "0.12 to 0.20 ml/device.go"

RULES = (
    Rule("kv cache", r"\"kv cache\" " + _SIZE, _DEVICE, read=_placed("kv.reserved_bytes")),
    Rule("model weights", r"\"model weights\" " + _SIZE, _DEVICE, read=_placed("config.weights_bytes")),
    Rule(
        "enabling flash attention",
        r"enabling flash attention",
        "0.12 to 0.20 llm/server.go",
        (),
        (Give("setting", "config.flash_attention", 1.0),),
    ),
    Rule(
        "flash attention enabled but not supported",
        r"flash attention enabled but not supported by (?:gpu|model)",
        "0.5 to 0.20 llm/server.go",
        (),
        (Give("setting", "config.flash_attention", 0.0), once("events.kernel_fallback")),
        says="flash attention is not supported here: attention runs unfused, and a quantised KV cache is not used",
    ),
    Rule(
        "layers.offload=",
        r"layers\.model=(?P<all>\d+) layers\.offload=(?P<n>\d+)",
        "0.3 to 0.11 llm/memory.go",
        (setting("n", "config.layers_on_device"), setting("all", "config.layers")),
    ),
    Rule(
        "inference compute",
        r"inference compute\".*? total=\"?(?P<n>[\d.]+)\s*(?P<unit>[KMGT]?i?B)",
        "fb3076099 discover/types.go",
        read=lambda matched, memory: _device(matched),
    ),
    Rule(
        "matched=",
        r"cache (?:hit|miss)\"?.*?total=(?P<total>\d+)\s+matched=(?P<matched>\d+)\s+"
        r"cached=(?P<cached>\d+)\s+left=(?P<left>\d+)",
        "fb3076099 x/mlxrunner/prefix_cache.go",
        read=_prefix,
        stat=True,
    ),
    Rule(
        "peak memory",
        r"peak memory\"?.*?size=\"?(?P<n>[\d.]+)\s*(?P<unit>[KMGT]?i?B)",
        "fb3076099 x/mlxrunner/pipeline.go",
        read=_memory,
        stat=True,
    ),
    Rule(
        "generation done",
        r"generation done\"?(?P<all>.*)",
        "runner.go of the MLX runner, as users report it",
        read=_done,
        stat=True,
    ),
    Rule(
        "server config",
        r"server config\"? env=\"?map\[(?P<all>.*)\]",
        "fb3076099 server/routes.go",
        read=lambda matched, memory: _environment(matched["all"]),
    ),
    Rule(
        "msg=load request=",
        r"msg=load request=\"?\{(?P<all>.*)\}",
        "0.12 llm/server.go",
        read=lambda matched, memory: _environment(matched["all"]),
    ),
    Rule(
        "failed to restore cache",
        r"failed to restore cache",
        "fb3076099 x/mlxrunner/prefix_cache.go",
        (),
        (once("events.tier_trouble"),),
        says="a cached prompt could not be restored: all caches were freed",
    ),
    Rule(
        "runtime OOM detected",
        r"runtime OOM detected",
        "fb3076099 server/sched.go",
        (),
        (once("events.oom"),),
        says="device memory ran out",
    ),
    Rule(
        "model predicted to exceed available memory",
        r"model predicted to exceed available memory",
        "fb3076099 server/sched.go",
        (),
        (once("events.oom"),),
    ),
    Rule(
        "starting llama",
        r"cmd=\"?(?P<all>[^\n]*--model[^\n]*)",
        "0.12 llm/server.go",
        read=lambda matched, memory: _command(matched["all"]),
    ),
)


def _device(matched: re.Match[str]) -> Iterable[Give]:
    value = number(matched["n"])
    if value is not None:
        yield Give("setting", "config.device_memory_bytes", value * _SIZES.get(matched["unit"], 1.0))


def _environment(text: str) -> Iterable[Give]:
    for name, value in re.findall(r"(\w+):(\w+)", text)[:200]:
        yield Give("word", name, 0.0, (), value)
    yield from options(text)


def _command(text: str) -> Iterable[Give]:
    words = text.split()
    for name, value in pairwise(words):
        if name.startswith("-") and not value.startswith("-"):
            yield Give("word", name.lstrip("-").replace("-", "_"), 0.0, (), value)
