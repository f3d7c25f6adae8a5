"""Settings as engines spell them, and what they mean: one table an engine, from its flags, its log and its pages.

A value that several say is taken from the surest: a person, then what the engine says came out, then what it was told
on its command line, then a model's config.json. Who said what travels beside it as ``config.said``.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kvscope import kv_types
from kvscope.errors import UsageError, nearest
from probes import border
from probes.border import printable
from probes.catalog import CATALOG
from probes.sample import Sample, labels_of

SOURCES = ("config.json", "command line", "page", "log", "person")
"""Who may say a setting, the surest last."""
_LONGEST = 160
_GIB = float(1 << 30)
_SIZES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_TRUE, _FALSE = ("true", "1", "yes", "on", "enabled", ""), ("false", "0", "no", "off", "disabled", "none", "null")

Read = Callable[[str], float | None]


def _number(text: str) -> float | None:
    try:
        value = float(text.replace(",", "").replace("_", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _flag(text: str) -> float | None:
    low = text.lower()
    return 1.0 if low in _TRUE else 0.0 if low in _FALSE else None


def _off(text: str) -> float | None:
    told = _flag(text)
    return None if told is None else 1.0 - told


def _given(text: str) -> float:
    """A setting that is on where anything but nothing is said."""
    return 0.0 if text.lower() in _FALSE else 1.0


def _positive(text: str) -> float | None:
    value = _number(text)
    return value if value is not None and value > 0 else None


def _gib(text: str) -> float | None:
    value = _number(text)
    return None if value is None else value * _GIB


def _size(text: str) -> float | None:
    """Bytes: plain, or with a unit of 1024 (``80GiB``, ``16g``)."""
    matched = re.fullmatch(r"([\d.,_]+)\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    value = _number(matched[1]) if matched else None
    return None if matched is None or value is None else value * _SIZES.get(matched[2], 1)


def _largest(text: str) -> float | None:
    found = [int(one) for one in re.findall(r"\d{1,9}", text)]
    return float(max(found)) if found else None


def _graphs(text: str) -> float | None:
    """vLLM's cudagraph_mode, as a name or as a number."""
    return 0.0 if re.search(r"\bNONE\b|: 0>|^0$", text) else 1.0 if text else None


@dataclass(frozen=True, slots=True)
class Option:
    """What one option means: a metric of the catalogue and how its text is read."""

    metric: str
    read: Read = _number


KV_TYPE, KEY_TYPE, VALUE_TYPE, OWN_TYPE = "kv type", "key type", "value type", "model type"
"""Options that name a number's format rather than a number; OWN_TYPE is what ``auto`` stands for."""

_VLLM = {
    "tensor_parallel_size": Option("config.tensor_parallel"),
    "pipeline_parallel_size": Option("config.pipeline_parallel"),
    "data_parallel_size": Option("config.data_parallel"),
    "max_model_len": Option("config.max_context", _positive),
    "max_seq_len": Option("config.max_context", _positive),
    "gpu_memory_utilization": Option("config.memory_utilization"),
    "max_num_seqs": Option("sched.max_running"),
    "max_num_batched_tokens": Option("config.max_batched_tokens"),
    "enable_chunked_prefill": Option("config.chunked_prefill", _flag),
    "no_enable_chunked_prefill": Option("config.chunked_prefill", _off),
    "enable_prefix_caching": Option("config.prefix_caching", _flag),
    "no_enable_prefix_caching": Option("config.prefix_caching", _off),
    "enforce_eager": Option("config.graphs", _off),
    "cudagraph_mode": Option("config.graphs", _graphs),
    "async_scheduling": Option("config.async_scheduling", _flag),
    "no_async_scheduling": Option("config.async_scheduling", _off),
    "max_cudagraph_capture_size": Option("config.graph_max_batch", _positive),
    "cudagraph_capture_sizes": Option("config.graph_max_batch", _largest),
    "cuda_graph_sizes": Option("config.graph_max_batch", _largest),
    "block_size": Option("kv.block_size", _positive),
    "effective_attention_block_size": Option("kv.block_size", _positive),
    "speculative_config": Option("config.speculative", _given),
    "kv_cache_memory_bytes": Option("config.kv_memory_bytes", _size),
    "kv_offloading_size": Option("config.host_cache_bytes", _gib),
    "swap_space": Option("config.host_cache_bytes", _gib),
    "sliding_window": Option("config.window_kv", _given),
}
_SGLANG = {
    "tp_size": Option("config.tensor_parallel"),
    "tp": Option("config.tensor_parallel"),
    "tensor_parallel_size": Option("config.tensor_parallel"),
    "pp_size": Option("config.pipeline_parallel"),
    "dp_size": Option("config.data_parallel"),
    "context_length": Option("config.max_context", _positive),
    "context_len": Option("config.max_context", _positive),
    "mem_fraction_static": Option("config.memory_utilization"),
    "max_running_requests": Option("sched.max_running", _positive),
    "chunked_prefill_size": Option("config.max_batched_tokens", _positive),
    "max_total_num_tokens": Option("kv.capacity_tokens", _positive),
    "max_total_tokens": Option("kv.capacity_tokens", _positive),
    "disable_radix_cache": Option("config.prefix_caching", _off),
    "disable_cuda_graph": Option("config.graphs", _off),
    "disable_overlap_schedule": Option("config.async_scheduling", _off),
    "enable_hierarchical_cache": Option("config.slower_tier", _flag),
    "cuda_graph_max_bs": Option("config.graph_max_batch", _positive),
    "cuda_graph_bs": Option("config.graph_max_batch", _largest),
    "page_size": Option("kv.block_size", _positive),
    "speculative_algorithm": Option("config.speculative", _given),
    "hicache_size": Option("config.host_cache_bytes", lambda text: (_number(text) or 0) * 1e9),
    "num_reserved_decode_tokens": Option("config.reserved_output_tokens"),
    "max_mamba_cache_size": Option("config.state_slots", _positive),
    "token_capacity": Option("kv.capacity_tokens", _positive),
    "effective_max_running_requests_per_dp": Option("sched.max_running", _positive),
    "weight": Option("config.weights_bytes", _gib),
    "kvcache": Option("kv.reserved_bytes", _gib),
    "graph": Option("config.graph_bytes", _gib),
}
_LLAMACPP = {
    "n_ctx": Option("config.max_context", _positive),
    "n_gpu_layers": Option("config.layers_on_device", _positive),
    "ngl": Option("config.layers_on_device", _positive),
    "parallel": Option("sched.max_running", _positive),
    "np": Option("sched.max_running", _positive),
    "n_slots": Option("sched.max_running", _positive),
    "total_slots": Option("sched.max_running", _positive),
    "n_ctx_slot": Option("config.max_context", _positive),
    "n_ctx_seq": Option("config.max_context", _positive),
    "n_batch": Option("config.max_batched_tokens", _positive),
    "batch_size": Option("config.max_batched_tokens", _positive),
    "kv_unified": Option("config.kv_unified", _flag),
    "flash_attn": Option("config.flash_attention", _flag),
    "fa": Option("config.flash_attention", _flag),
    "cache_ram": Option("config.host_cache_bytes", lambda text: (_positive(text) or 0) * (1 << 20)),
    "cram": Option("config.host_cache_bytes", lambda text: (_positive(text) or 0) * (1 << 20)),
    "model_draft": Option("config.speculative", _given),
    "md": Option("config.speculative", _given),
}
_TENSORRT_LLM = {
    "tensor_parallel_size": Option("config.tensor_parallel"),
    "tp_size": Option("config.tensor_parallel"),
    "pp_size": Option("config.pipeline_parallel"),
    "max_seq_len": Option("config.max_context", _positive),
    "max_num_tokens": Option("config.max_batched_tokens", _positive),
    "max_batch_size": Option("sched.max_running", _positive),
    "free_gpu_memory_fraction": Option("config.memory_utilization"),
    "kv_cache_free_gpu_memory_fraction": Option("config.memory_utilization"),
    "enable_block_reuse": Option("config.prefix_caching", _flag),
    "tokens_per_block": Option("kv.block_size", _positive),
    "host_cache_size": Option("config.host_cache_bytes", _size),
    "enable_chunked_prefill": Option("config.chunked_prefill", _flag),
    "speculative_config": Option("config.speculative", _given),
    "disable_overlap_scheduler": Option("config.async_scheduling", _off),
}
_LMDEPLOY = {
    "tp": Option("config.tensor_parallel"),
    "dp": Option("config.data_parallel"),
    "session_len": Option("config.max_context", _positive),
    "max_batch_size": Option("sched.max_running", _positive),
    "max_prefill_token_num": Option("config.max_batched_tokens", _positive),
    "cache_max_entry_count": Option("config.memory_utilization"),
    "cache_block_seq_len": Option("kv.block_size", _positive),
    "block_size": Option("kv.block_size", _positive),
    "enable_prefix_caching": Option("config.prefix_caching", _flag),
    "num_gpu_blocks": Option("kv.capacity_blocks", _positive),
    "eager_mode": Option("config.graphs", _off),
}
_OLLAMA = _LLAMACPP | {
    "OLLAMA_NUM_PARALLEL": Option("sched.max_running", _positive),
    "OLLAMA_CONTEXT_LENGTH": Option("config.max_context", _positive),
    "OLLAMA_FLASH_ATTENTION": Option("config.flash_attention", _flag),
    "NumCtx": Option("config.max_context", _positive),
    "KvSize": Option("kv.capacity_tokens", _positive),
    "BatchSize": Option("config.max_batched_tokens", _positive),
    "Parallel": Option("sched.max_running", _positive),
}
_TGI = {
    "max_concurrent_requests": Option("sched.max_running", _positive),
    "max_total_tokens": Option("config.max_context", _positive),
    "max_batch_prefill_tokens": Option("config.max_batched_tokens", _positive),
    "max_batch_total_tokens": Option("kv.budget_tokens", _positive),
    "cuda_memory_fraction": Option("config.memory_utilization"),
    "num_shard": Option("config.tensor_parallel"),
}
TABLES: Mapping[str, Mapping[str, Option]] = {
    "vllm": _VLLM,
    "sglang": _SGLANG,
    "llama.cpp": _LLAMACPP,
    "tensorrt-llm": _TENSORRT_LLM,
    "lmdeploy": _LMDEPLOY,
    "ollama": _OLLAMA,
    "tgi": _TGI,
    "dynamo": _VLLM,
}
_TYPES = {
    "kv_cache_dtype": KV_TYPE,
    "cache_dtype": KV_TYPE,
    "kv_cache_quant": KV_TYPE,
    "OLLAMA_KV_CACHE_TYPE": KV_TYPE,
    "KvCacheType": KV_TYPE,
    "quant_policy": KV_TYPE,
    "cache_type_k": KEY_TYPE,
    "type_k": KEY_TYPE,
    "ctk": KEY_TYPE,
    "cache_type_v": VALUE_TYPE,
    "type_v": VALUE_TYPE,
    "ctv": VALUE_TYPE,
    "dtype": OWN_TYPE,
}
_POLICIES = {"4": "int4", "8": "int8", "0": "auto"}
"""LMDeploy's quant_policy by number."""


@dataclass(slots=True)
class _Said:
    value: float
    spelt: str
    source: str


@dataclass(slots=True)
class Settings:
    """What is known of one engine's settings."""

    engine: str = ""
    _said: dict[str, _Said] = field(default_factory=dict)
    _types: dict[str, tuple[str, str]] = field(default_factory=dict)
    _fresh: set[str] = field(default_factory=set)

    def say(self, metric: str, value: float, source: str, spelt: str = "") -> None:
        """Take a number under its canonical name, unless somebody surer said another."""
        before = self._said.get(metric)
        if before is not None and SOURCES.index(before.source) > SOURCES.index(source):
            return
        if before is None or before.value != value or before.source != source:
            self._fresh.add(metric)
        self._said[metric] = _Said(value, spelt or f"{value:g}", source)

    def read(self, name: str, text: str, source: str) -> bool:
        """Take an option in the engine's spelling; False where it means nothing here."""
        name = name.lstrip("-").replace("-", "_")
        text = printable(text.strip().strip("'\""))
        kind = _TYPES.get(name)
        if kind is not None:
            self._type(kind, text, source)
            return True
        option = TABLES.get(self.engine, {}).get(name)
        value = option.read(text) if option is not None else None
        if option is None or value is None:
            return False
        self.say(option.metric, value, source, text)
        return True

    def values(self) -> dict[str, float]:
        """Every number said so far."""
        return {metric: said.value for metric, said in self._said.items()}

    def sources(self) -> dict[str, str]:
        """Metric → who said it."""
        return {metric: said.source for metric, said in self._said.items()}

    def tags(self) -> dict[str, str]:
        """What of the settings belongs to a segment's identity: the KV's format, the cap, prefix caching."""
        found = {}
        if KV_TYPE in self._types:
            found["dtype"] = self._types[KV_TYPE][0]
        elif KEY_TYPE in self._types and VALUE_TYPE in self._types:
            key, value = self._types[KEY_TYPE][0], self._types[VALUE_TYPE][0]
            found["dtype"] = key if key == value else f"{key}:{value}"
        for tag, metric in (("cap", "sched.max_running"), ("prefix_caching", "config.prefix_caching")):
            if metric in self._said:
                number = self._said[metric].value
                found[tag] = f"{number:g}" if tag == "cap" else ("on" if number else "off")
        return found

    def samples(self, t: float, *, again: bool = False) -> Iterator[Sample]:
        """Yield what was said since the last call (``again``: all of it), each with who said it."""
        for metric in list(self._said) if again else [one for one in self._said if one in self._fresh]:
            said = self._said[metric]
            yield Sample(metric, said.value, t)
            yield Sample(
                "config.said",
                1.0,
                t,
                labels_of(setting=metric, value=printable(said.spelt, _LONGEST), source=said.source),
            )
        for kind, (spelt, source) in self._types.items():
            if again or kind in self._fresh:
                yield Sample(
                    "config.said", 1.0, t, labels_of(setting=kind, value=printable(spelt, _LONGEST), source=source)
                )
        self._fresh.clear()

    def _type(self, kind: str, text: str, source: str) -> None:
        text = _POLICIES.get(text, text)
        before = self._types.get(kind)
        if before is not None and SOURCES.index(before[1]) > SOURCES.index(source):
            return
        if before != (text, source):
            self._types[kind] = (text, source)
            self._fresh.add(kind)
        self._widths(source)

    def _widths(self, source: str) -> None:
        """Work out the bits of keys and values from the formats said so far; what is unknown stays unknown."""
        own = self._types.get(OWN_TYPE, ("", ""))[0]
        whole = self._types.get(KV_TYPE, ("", ""))[0]
        first, second = self._types.get(KEY_TYPE, (whole, ""))[0], self._types.get(VALUE_TYPE, (whole, ""))[0]
        both = [kv_types.find(own if one == "auto" else one) for one in (first, second)]
        key, value = both
        if key is None or value is None:
            return
        found = kv_types.mixed(key.name, value.name)
        if found is None:
            return
        spelt = whole if whole and whole != "auto" else found.name
        self.say("config.kv_key_bits", found.key.stored(kv_types.HEAD_DIM), source, spelt)
        self.say("config.kv_value_bits", found.value.stored(kv_types.HEAD_DIM), source, spelt)
        self.say("config.kv_bits", found.bits(), source, spelt)


def flags_wanted(engine: str) -> frozenset[str]:
    """Return the flags (without dashes) that mean something on this engine's command line."""
    return frozenset(name.replace("_", "-") for name in (*TABLES.get(engine, {}), *_TYPES))


DOCUMENTS: Mapping[str, tuple[str, ...]] = {
    "sglang": ("/server_info", "/get_server_info"),
    "vllm": ("/server_info?config_format=json",),
    "llama.cpp": ("/props",),
}
"""Where an engine gives an account of itself as JSON; vLLM's only under VLLM_SERVER_DEV_MODE=1."""


def of_person(settings: Settings, texts: list[str]) -> None:
    """Take ``config.NAME=VALUE`` (or an engine's own option) as a person gave it. UsageError names the nearest."""
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals:
            raise UsageError(f"--set {text!r}: expected NAME=VALUE, e.g. config.max_batched_tokens=8192")
        if name in ("config.kv_type", "kv_type"):
            if kv_types.find(value) is None:
                known = kv_types.names()
                raise UsageError(f"--set {text!r}: KV type unknown{nearest(value, known)}; known: {', '.join(known)}")
            settings.read("kv_cache_dtype", value, "person")
            continue
        line = CATALOG.get(name)
        if line is not None and line.kind == "gauge":
            number = _size(value) if line.unit == "B" else _flag(value) if line.unit == "flag" else _number(value)
            if number is None:
                raise UsageError(f"--set {text!r}: expected a number in {line.unit}, got {value!r}")
            settings.say(name, number, "person", value)
        elif not settings.read(name, value, "person"):
            settings_known = [one for one in CATALOG if one.startswith("config.")]
            near = nearest(name, [*settings_known, *TABLES.get(settings.engine, {})])
            raise UsageError(
                f"--set {text!r}: no setting {name!r}{near}; settings: {', '.join(sorted(settings_known))}"
            )


def of_model(settings: Settings, config: Mapping[str, Any]) -> None:
    """Take what a model's config.json says that decides about KV."""
    text = config.get("text_config")
    inner: Mapping[str, Any] = text if isinstance(text, dict) else config
    heads = inner.get("num_key_value_heads") or inner.get("num_attention_heads")
    if inner.get("kv_lora_rank"):
        heads = 1
    for metric, value in (
        ("config.kv_heads", heads),
        ("config.layers", inner.get("num_hidden_layers")),
        ("config.sparse_topk", inner.get("index_topk")),
    ):
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 40:
            settings.say(metric, float(value), "config.json")
    if inner.get("sliding_window") and inner.get("use_sliding_window", True):
        settings.say("config.window_kv", 1.0, "config.json", f"{inner['sliding_window']}"[:_LONGEST])
    own = inner.get("dtype") or inner.get("torch_dtype") or config.get("dtype") or config.get("torch_dtype")
    if isinstance(own, str):
        settings.read("dtype", own, "config.json")


def of_document(settings: Settings, document: object, source: str = "page") -> int:
    """Take every option of an engine's JSON account of itself, however deep; return how many meant something."""
    count, pending = 0, [document]
    for _ in range(20_000):
        if not pending:
            break
        one = pending.pop()
        if isinstance(one, list):
            pending += one[:1000]
            continue
        if not isinstance(one, dict):
            continue
        for name, value in one.items():
            if isinstance(value, dict | list):
                pending.append(value)
            if isinstance(value, bool | int | float | str) or value is None or _plain(value):
                count += settings.read(str(name), str(value) if value is not None else "none", source)
    return count


def _plain(value: object) -> bool:
    return isinstance(value, list) and len(value) < 1000 and all(isinstance(one, int | float) for one in value)


def load_model(path: str) -> Mapping[str, Any]:
    """Read a config.json. UsageError when it cannot be read or is no object."""
    from pathlib import Path

    try:
        found = border.document(border.read_file(Path(os.path.expanduser(path)), 4 << 20), "the file")
    except (OSError, ValueError) as error:
        raise UsageError(f"--config {path}: not a model's config.json ({border.printable(error, 200)})") from error
    if not isinstance(found, dict):
        raise UsageError(f"--config {path}: expected a JSON object, a model's config.json")
    return found
