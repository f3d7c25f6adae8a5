"""A running server, or its log: the settings it says, the model it names, and what it reports of its pool."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kvscope import kv_types
from kvscope.errors import KvscopeError, UsageError
from kvscope.plan import target as room
from probes import border

TIMEOUT_S = 5.0
MOST_POLLS = 3
ENGINES = {
    "vllm": "vllm",
    "sglang": "sglang",
    "llamacpp": "llama.cpp",
    "llama.cpp": "llama.cpp",
    "ollama": "ollama",
    "tensorrt-llm": "trtllm",
    "tensorrt_llm": "trtllm",
    "lmdeploy": "lmdeploy",
}
MODEL_TAGS = ("model_path", "model", "model_name")


def from_server(url: str, config: str | None = None) -> room.Target:
    """Read a server's settings from its pages; SourceError when it does not answer, UsageError without a model."""
    said, tags, engine, _ = _settings(url)
    about = _models(url)
    names = [config, about.get("root"), about.get("id"), *(tags.get(tag) for tag in MODEL_TAGS)]
    longest = about.get("max_model_len")
    if isinstance(longest, int) and not isinstance(longest, bool):
        said.setdefault("config.max_context", float(longest))
    return _target(url, names, said, tags, engine, "its page")


def from_log(path: Path, config: str | None = None) -> room.Target:
    """Read the settings an engine logged at its start; SourceError when it is no engine's log."""
    said, tags, engine, version = _settings(str(path))
    names = [config, *(tags.get(tag) for tag in MODEL_TAGS)]
    told = f"{engine}@{version}" if engine and version else engine
    return _target(str(path), names, said, tags, told, "its log")


def _settings(text: str) -> tuple[dict[str, float], dict[str, str], str | None, str]:
    """Last value of every setting and pool size, the tags, the engine and its release."""
    from kvscope import sources

    source = sources.open_target(text, timeout_s=TIMEOUT_S)
    said: dict[str, float] = {}
    tags: dict[str, str] = {}
    try:
        for _ in range(MOST_POLLS):
            found = source.poll()
            for sample in found.samples:
                if sample.metric == "config.said":
                    labels = dict(sample.labels)
                    tags[f"said:{labels.get('setting', '')}"] = labels.get("value", "")
                elif sample.metric.startswith(("config.", "kv.", "sched.max_running")):
                    said[sample.metric] = sample.value
            if found.ended or said:
                break
        about = source.describe()
    finally:
        source.close()
    version = about.version if about.version[:1].isdigit() else ""
    return said, {**about.tags, **tags}, ENGINES.get(about.engine), version


def _models(url: str) -> Mapping[str, Any]:
    """The first model of the OpenAI route, or nothing."""
    from kvscope.sources.fetch import fetch

    parts = urlsplit(url)
    try:
        address = f"{parts.scheme}://{parts.netloc}/v1/models"
        content = border.document(fetch(address, TIMEOUT_S), address)
        first = content["data"][0]
        return first if isinstance(first, dict) else {}
    except (KvscopeError, ValueError, KeyError, TypeError, IndexError, RecursionError):
        return {}


def _target(
    text: str, names: list[Any], said: dict[str, float], tags: Mapping[str, str], engine: str | None, where: str
) -> room.Target:
    model, tried = None, []
    for name in names:
        if not isinstance(name, str) or not name:
            continue
        tried.append(name)
        try:
            model = room.open_model(name)
            break
        except UsageError:
            if name == names[0]:
                raise
    if model is None:
        named = f" {' or '.join(map(repr, dict.fromkeys(tried)))}" if tried else ""
        raise UsageError(f"{text}: names the model{named}, which is not here; expected --config FILE beside it")
    return room.Target(
        model.name,
        model.model,
        engine or model.engine,
        context=_count(said, "config.max_context"),
        kv_dtype=_kv_dtype(tags),
        tp=_count(said, "config.tensor_parallel"),
        block_size=_count(said, "kv.block_size"),
        batched_tokens=_count(said, "config.max_batched_tokens"),
        slots=_count(said, "sched.max_running") if engine and engine.startswith("llama.cpp") else None,
        prefix_caching=bool(said["config.prefix_caching"]) if "config.prefix_caching" in said else None,
        pool_bytes=_count(said, "config.kv_memory_bytes", "kv.reserved_bytes"),
        reported=room.Reported(where, _count(said, "kv.capacity_tokens"), None),
    )


def _kv_dtype(tags: Mapping[str, str]) -> str | None:
    """Keys and values as the engine named them; None where it said nothing that is known."""
    names = [tags.get(f"said:config.kv_{half}_bits", "") for half in ("key", "value")]
    if any(kv_types.find(name) is None for name in names):
        return None
    return ":".join(dict.fromkeys(names))


def _count(said: dict[str, float], *names: str) -> int | None:
    value = next((said[name] for name in names if said.get(name, 0) > 0), None)
    return None if value is None else int(value)
