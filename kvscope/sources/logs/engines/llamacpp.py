"""llama.cpp's server log: what each request took, slots that start and stop, checkpoints, memory at the start."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kvscope.sources.logs.rule import Give, Memory, Rule, number, once, setting, tag, word

ENGINE = "llama.cpp"
READ_IN = "llama.cpp b11434 (tools/server/server-context.cpp, src/llama-kv-cache.cpp, src/llama-context.cpp) and older"
BESIDE = ("ollama",)
STARTS = (b"loading model '", b"llama_context: n_")
"""What it writes when it starts, every time."""
LACKS = "how many requests wait: only its page does (--metrics)"

_MIB = float(1 << 20)
_SLOT = r"slot\s+[^:]*: id\s+(?P<slot>\d+) \| task -?(?P<task>\d+) \| "
_MOST = 1024


def _note(memory: Memory, kind: str, task: str, value: float) -> float:
    """Remember a figure of a task and return the one before; what is kept is bounded."""
    kept: dict[str, float] = memory.setdefault(kind, {})
    if len(kept) >= _MOST:
        kept.pop(next(iter(kept)))
    before = kept.get(task, 0.0)
    kept[task] = value
    return before


def _busy(memory: Memory) -> Iterable[Give]:
    yield Give("gauge", "sched.running", float(len(memory.get("busy", ()))))


def _launched(matched: re.Match[str], memory: Memory) -> Iterable[Give]:
    memory.setdefault("busy", set()).add(matched["slot"])
    return _busy(memory)


def _released(matched: re.Match[str], memory: Memory) -> Iterable[Give]:
    memory.setdefault("busy", set()).discard(matched["slot"])
    yield from _busy(memory)
    held = number(matched["held"] or "")
    if held is not None:
        kept = memory.setdefault("held", {})
        kept[matched["slot"]] = held
        yield Give("gauge", "kv.evictable_tokens", float(sum(kept.values())))


def _asked(matched: re.Match[str], memory: Memory) -> Iterable[Give]:
    tokens = number(matched["n"])
    if tokens is not None:
        _note(memory, "asked", matched["task"], tokens)
        yield Give("grow", "tokens.prompt", tokens)
        yield Give("grow", "prefix.queries", tokens)
    context = number(matched["ctx"])
    if context:
        yield Give("setting", "config.max_context", context)


def _prompt_done(matched: re.Match[str], memory: Memory) -> Iterable[Give]:
    took, tokens = number(matched["ms"]), number(matched["n"])
    if took is None or tokens is None:
        return
    yield Give("grow", "tokens.prefilled", tokens)
    yield Give("grow", "time.prefill_requests", took / 1e3)
    asked = memory.get("asked", {}).pop(matched["task"], None)
    row = memory["row"] = {"latency.prefill_time": took / 1e3, "request.tokens_computed": tokens}
    if asked is not None:
        row["request.tokens_in"] = asked
        row["request.prefix_hits"] = max(0.0, asked - tokens)
        yield Give("grow", "prefix.hits", max(0.0, asked - tokens))
    elif matched["slot"] is not None:
        yield from _reused(matched["slot"], tokens, memory)


_SHARES, _WHOLE, _SURE = 0.5, 0.9, 3
"""A slot taken for at least so much of a prompt, so much of it computed all the same, and so many times in a row."""


def _chosen(matched: re.Match[str], memory: Memory) -> Iterable[Give]:
    """A slot is taken because what it holds begins like the prompt: both lengths follow from the two shares."""
    share, kept = number(matched["share"]), number(matched["kept"])
    held = memory.get("held", {}).get(matched["slot"])
    if share and kept is not None and held:
        memory.setdefault("chosen", {})[matched["slot"]] = (kept * held, kept * held / share)
    return ()


def _reused(slot: str, computed: float, memory: Memory) -> Iterable[Give]:
    """Tell what a chosen slot saved; prompts that match and are computed whole, each time, are not to be reused."""
    common, asked = memory.get("chosen", {}).pop(slot, (0.0, computed))
    yield Give("grow", "prefix.queries", max(asked, computed))
    yield Give("grow", "prefix.matched", common)
    yield Give("grow", "prefix.hits", max(0.0, asked - computed))
    if common < _SHARES * asked or "matched" in memory:
        return
    whole = memory["whole"] = memory.get("whole", 0) + 1 if computed >= _WHOLE * asked else 0
    if whole in (0, _SURE):
        yield Give("setting", "config.prefix_caching", float(not whole))


def _eval_done(matched: re.Match[str], memory: Memory) -> Iterable[Give]:
    took, tokens = number(matched["ms"]), number(matched["n"])
    if took is None or tokens is None:
        return
    before = memory.get("progress", {}).pop(matched["task"], 0.0)
    yield Give("grow", "tokens.generated", max(0.0, tokens - before))
    yield Give("grow", "time.decode_requests", took / 1e3)
    row = memory.setdefault("row", {})
    row |= {"latency.decode_time": took / 1e3, "request.tokens_out": tokens}
    if tokens > 1:
        row["latency.tpot"] = took / 1e3 / tokens


def _progress(matched: re.Match[str], memory: Memory) -> Iterable[Give]:
    tokens = number(matched["n"])
    if tokens is not None:
        before = _note(memory, "progress", matched["task"], tokens)
        yield Give("grow", "tokens.generated", max(0.0, tokens - before))


def _total(matched: re.Match[str], memory: Memory) -> Iterable[Give]:
    """Give all of a request at once: its lines stand together, and values of one request share a time."""
    took, row = number(matched["ms"]), memory.pop("row", {})
    yield Give("grow", "requests.finished", 1.0)
    if took is not None:
        row["latency.inference_time"] = took / 1e3
    for metric, value in row.items():
        yield Give("each", metric, value)


def _checked(matched: re.Match[str], memory: Memory) -> Iterable[Give]:
    """How far a cached prompt matches: said while its checkpoints are looked through."""
    matching = number(matched["n"])
    if matching is not None and _note(memory, "matched", matched["task"], matching) != matching:
        yield Give("grow", "prefix.matched", matching)
    yield Give("setting", "config.state_checkpoints", 1.0)


def _pool(matched: re.Match[str], memory: Memory) -> Iterable[Give]:
    size, cells, layers = (number(matched[group]) for group in ("mib", "cells", "layers"))
    if size is None or cells is None or layers is None:
        return
    # A hybrid model prints one such line for the layers with a window and one for the others: they add up.
    window = memory.setdefault("pools", {})
    window[(cells, layers)] = size
    yield Give("setting", "kv.reserved_bytes", sum(window.values()) * _MIB)
    yield Give("setting", "config.layers", sum(number for _, number in window))
    yield Give("setting", "kv.capacity_tokens", max(number for number, _ in window))
    yield Give("word", "type_k", 0.0, (), matched["k"])
    yield Give("word", "type_v", 0.0, (), matched["v"])
    if len(window) > 1:
        yield Give("setting", "config.window_kv", 1.0)


RULES = (
    Rule(
        "processing task",
        _SLOT + r"processing task",
        "b11434 server-context.cpp launch_slot_",
        read=_launched,
        stat=True,
    ),
    Rule(
        "selected slot by LCP similarity",
        _SLOT + r"selected slot by LCP similarity, (?:f_)?sim_best = (?P<share>[\d.]+) .*f_keep = (?P<kept>[\d.]+)",
        "b11434 server-context.cpp get_available_slot",
        read=_chosen,
        stat=True,
    ),
    Rule(
        "stop processing:",
        _SLOT + r"stop processing: n_(?:tokens|past) = (?P<held>\d+)",
        "b11434 server-context.cpp release",
        read=_released,
        stat=True,
    ),
    Rule(
        "slot is processing task",
        r"slot is processing task.* id_slot=(?P<slot>\d+)",
        "b2200 to b3700 examples/server/server.cpp",
        read=_launched,
        stat=True,
    ),
    Rule(
        "slot released",
        r"slot released.* id_slot=(?P<slot>\d+) id_task=\d+ (?:n_ctx=\d+ )?n_past=(?P<held>\d+)",
        "b2200 to b3700 examples/server/server.cpp",
        read=_released,
        stat=True,
    ),
    Rule(
        "new prompt, n_ctx_slot",
        _SLOT
        + r"new prompt, n_ctx_slot = (?P<ctx>\d+), n_keep = -?\d+, (?:task\.n_tokens|n_prompt_tokens) = (?P<n>\d+)",
        "b11434 server-context.cpp update_slots",
        read=_asked,
        stat=True,
    ),
    Rule(
        "prompt eval time ",
        r"(?:" + _SLOT + r")?\s*prompt eval time\s*=\s*(?P<ms>[\d.]+) ms /\s*(?P<n>\d+) tokens",
        "b11434 server-context.cpp print_timings",
        read=_prompt_done,
        stat=True,
    ),
    Rule(
        " eval time =",
        r"(?:" + _SLOT + r")?(?<!prompt)\s+eval time =\s*(?P<ms>[\d.]+) ms /\s*(?P<n>\d+) (?:tokens|runs)",
        "b11434 server-context.cpp print_timings",
        read=_eval_done,
        stat=True,
    ),
    Rule(
        "total time =",
        r"total time =\s*(?P<ms>[\d.]+) ms /\s*\d+ tokens",
        "b11434 server-context.cpp print_timings",
        read=_total,
        stat=True,
    ),
    Rule(
        "tg_3s =",
        _SLOT + r"n_(?:gen|decoded) =\s*(?P<n>\d+), tg =",
        "b11434 server-context.cpp print_timings",
        read=_progress,
        stat=True,
    ),
    Rule(
        "hecking checkpoint with",
        _SLOT + r"[Cc]hecking checkpoint with \[[\d, ]+\] against (?P<n>\d+)",
        "b11434 server-context.cpp update_slots",
        read=_checked,
        stat=True,
    ),
    Rule(
        "forcing full prompt re-processing",
        r"forcing full prompt re-processing",
        "b11434 server-context.cpp update_slots",
        (),
        (once("prefix.full_recomputes"),),
        says="prompts were computed anew from their first token: no saved state lay before the change",
    ),
    Rule(
        "erased invalidated context checkpoint",
        r"erased invalidated context checkpoint",
        "b11434 server-context.cpp update_slots",
        (),
        (once("events.checkpoints_erased"),),
    ),
    Rule(
        "restored context checkpoint",
        r"restored context checkpoint",
        "b11434 server-context.cpp update_slots",
        (),
        (once("events.checkpoints_restored"),),
    ),
    Rule(
        "failed to find free space in the KV cache",
        r"failed to find free space in the KV cache",
        "b11434 server-context.cpp decode",
        (),
        (once("events.kv_full"),),
        says="the KV pool had no room for a batch: it was tried again in smaller pieces",
    ),
    Rule(
        "Context size has been exceeded",
        r"send_error:.*Context size has been exceeded",
        "b11434 server-context.cpp send_error",
        (),
        (once("requests.errors"),),
        says="requests failed because the context was exceeded",
    ),
    Rule(
        "initializing, n_slots",
        r"n_slots = (?P<slots>\d+), n_ctx_slot = (?P<ctx>\d+), kv_unified = '(?P<unified>\w+)'",
        "b11434 server-context.cpp load_model",
        (word("slots", "n_slots"), word("ctx", "n_ctx_slot"), word("unified", "kv_unified")),
        read=lambda matched, memory: _pool_of_slots(matched),
    ),
    Rule(
        "initializing slots, n_slots",
        r"initializing slots, n_slots = (?P<slots>\d+)",
        "b6000 server.cpp load_model",
        (word("slots", "n_slots"),),
    ),
    Rule(
        "seqs), K (",
        r"size =\s*(?P<mib>[\d.]+) MiB \(\s*(?P<cells>\d+) cells,\s*(?P<layers>\d+) layers,[^)]*\), "
        r"K \((?P<k>\w+)\):\s*[\d.]+ MiB, V \((?P<v>\w+)\):",
        "b11434 src/llama-kv-cache.cpp",
        read=_pool,
    ),
    Rule(
        "KV self size",
        r"KV self size\s*=\s*(?P<mib>[\d.]+) MiB, K \((?P<k>\w+)\):\s*[\d.]+ MiB, V \((?P<v>\w+)\):",
        "b2000 to b5500 src/llama.cpp",
        (setting("mib", "kv.reserved_bytes", float(1 << 20)), word("k", "type_k"), word("v", "type_v")),
    ),
    Rule(
        "type_k =",
        r"kv_size = (?P<size>\d+),.*?type_k = '(?P<k>\w+)', type_v = '(?P<v>\w+)', n_layer = (?P<layers>\d+)",
        "b4500 src/llama-kv-cache.cpp",
        (
            setting("size", "kv.capacity_tokens"),
            word("k", "type_k"),
            word("v", "type_v"),
            setting("layers", "config.layers"),
        ),
    ),
    Rule(
        "llama_context: n_",
        r"llama_context: (?P<name>n_ctx_seq|n_batch)\s*= (?P<n>\d+)",
        "b11434 src/llama-context.cpp",
        read=lambda matched, memory: [Give("word", matched["name"], 0.0, (), matched["n"])],
    ),
    Rule(
        "Flash Attention was auto, set to",
        r"Flash Attention was auto, set to (?P<how>enabled|disabled)",
        "b11434 src/llama-context.cpp",
        (word("how", "flash_attn"),),
    ),
    Rule(
        "flash_attn",
        r"llama_context: flash_attn\s*= (?P<how>enabled|disabled|0|1)",
        "b6000 src/llama-context.cpp",
        (word("how", "flash_attn"),),
    ),
    Rule(
        "Flash Attention tensor is assigned to device CPU",
        r"Flash Attention tensor is assigned to device CPU",
        "b11434 src/llama-context.cpp",
        (),
        (once("events.kernel_fallback"), Give("setting", "config.kv_type_off_path", 1.0)),
        says="attention runs on the host: the device has no kernel for this model or these KV types",
    ),
    Rule(
        "layers to GPU",
        r"offloaded (?P<n>\d+)/\d+ layers to GPU",
        "b11434 src/llama-model.cpp",
        (setting("n", "config.layers_on_device"),),
    ),
    Rule(
        "prompt cache is enabled",
        r"prompt cache is enabled, size limit: (?P<mib>\d+) MiB",
        "b11434 server-context.cpp load_model",
        (setting("mib", "config.host_cache_bytes", _MIB),),
    ),
    Rule(
        " - cache state:",
        r"cache state: \d+ prompts, (?P<mib>[\d.]+) MiB \(limits: (?P<limit>[\d.]+) MiB",
        "b11434 server-task.cpp prompt cache update",
        read=lambda matched, memory: _tier(matched),
        stat=True,
    ),
    Rule(
        "loading model '",
        r"loading model '(?P<name>[^']{1,200})'",
        "b11434 server-context.cpp",
        (tag("name", "model"),),
    ),
    Rule("build: ", r"build: (?P<n>\d{3,6}) \(", "b11434 common/common.cpp", (tag("n", "version"),)),
    Rule(
        "cudaMalloc failed",
        r"cudaMalloc failed: out of memory|failed to allocate",
        "b11434 ggml-cuda.cu",
        (),
        (once("events.oom"),),
        says="device memory ran out",
    ),
)


def _pool_of_slots(matched: re.Match[str]) -> Iterable[Give]:
    slots, context = number(matched["slots"]), number(matched["ctx"])
    if slots and context:
        yield Give("setting", "kv.capacity_tokens", context if matched["unified"] == "true" else slots * context)


def _tier(matched: re.Match[str]) -> Iterable[Give]:
    used, limit = number(matched["mib"]), number(matched["limit"])
    labels = (("tier", "host"),)
    if used is not None:
        yield Give("gauge", "tier.used_bytes", used * _MIB, labels)
    if limit:
        yield Give("gauge", "tier.capacity_bytes", limit * _MIB, labels)
        yield Give("gauge", "tier.usage_ratio", (used or 0.0) / limit, labels)
