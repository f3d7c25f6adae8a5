"""What a person gives to `kvscope plan`: a config, a folder, a cached model, a GGUF file, a server or its log."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kvscope import kv_types
from kvscope.errors import KvscopeError, UsageError
from kvscope.plan import gguf, gguf_model
from kvscope.plan import target as room
from kvscope.plan.config import read_config
from kvscope.plan.model import Geometry, geometry
from kvscope.plan.weights import measured
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
    version = about.version if about.version[:1].isdecimal() else ""
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


MODEL_ID = re.compile(r"[\w.-]+/[\w.-]+")
MOST_INDEX_BYTES = 64 << 20
LONGEST_NAME = 80


@dataclass(frozen=True, slots=True)
class Reported:
    """What a server or its log says about its own pool, to be printed beside the count."""

    source: str
    pool_tokens: int | None = None
    concurrency: float | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """A model, and the settings that came with it (None: not said)."""

    name: str
    model: Geometry
    engine: str | None = None
    context: int | None = None
    kv_dtype: str | None = None
    tp: int | None = None
    block_size: int | None = None
    batched_tokens: int | None = None
    slots: int | None = None
    prefix_caching: bool | None = None
    pool_bytes: int | None = None
    reported: Reported | None = None


def open_target(text: str, config: str | None = None) -> Target:
    """Open whatever ``text`` names; ``config``: the model of a server or a log. UsageError, SourceError."""

    if text.startswith(("http://", "https://")):
        return from_server(text, config)
    path = Path(text)
    if path.is_file() and not _is_model(path):
        return from_log(path, config)
    if config is not None:
        raise UsageError(f"--config {config}: expected beside a server or its log only, not beside the model {text}")
    return open_model(text)


def open_model(text: str) -> Target:
    """Open a model: a config.json, its folder, a GGUF file, an id in the cache; UsageError."""
    path = Path(text)
    if path.is_dir() or path.suffix == ".json":
        return _folder(path)
    if path.is_file() and gguf.is_gguf(path):
        return Target(
            border.printable(path.name, LONGEST_NAME), gguf_model.geometry_of(gguf.read_header(path)), "llama.cpp"
        )
    if MODEL_ID.fullmatch(text):
        return replace(_folder(cached(text)), name=text)
    raise UsageError(f"{text}: no such file; expected a config.json, a folder, a GGUF file, a model id, a URL or a log")


def _is_model(path: Path) -> bool:
    return path.suffix in (".json", ".gguf") or gguf.is_gguf(path)


def _folder(path: Path) -> Target:
    """A config.json, and the checkpoint beside it where there is one."""
    config = read_config(path)
    model = geometry(config)
    name = str(config.outer.get("_name_or_path") or "") or model.model_type
    folder = path if path.is_dir() else path.parent
    size = checkpoint_bytes(folder) if path.is_dir() or path.name == "config.json" else None
    if size:
        model = replace(model, weights=measured(model.weights, size, "of the checkpoint beside the config"))
    return Target(border.printable(name, LONGEST_NAME), model)


def cached(model_id: str) -> Path:
    """Return the folder of a model in the local Hugging Face cache; UsageError when it is not there."""
    home = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    root = Path(home) if home else Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface") / "hub"
    store = root / ("models--" + model_id.replace("/", "--"))
    reference = store / "refs" / "main"
    snapshots = store / "snapshots"
    candidates = []
    if reference.is_file():
        revision = reference.read_text(encoding="utf-8", errors="replace").strip()
        if re.fullmatch(r"[0-9a-fA-F]{7,64}", revision):
            candidates.append(snapshots / revision)
    if snapshots.is_dir():
        candidates += sorted(snapshots.iterdir(), reverse=True)
    for folder in candidates:
        if (folder / "config.json").is_file():
            return folder
    raise UsageError(f"{model_id}: no such file, and not in the local Hugging Face cache ({root})")


def checkpoint_bytes(folder: Path) -> int | None:
    """Bytes of a checkpoint: what its safetensors index says, else the size of its files."""
    index = folder / "model.safetensors.index.json"
    try:
        if index.is_file() and index.stat().st_size <= MOST_INDEX_BYTES:
            total = border.document(border.read_file(index), str(index))["metadata"]["total_size"]
            if isinstance(total, int) and not isinstance(total, bool) and total > 0:
                return total
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass
    try:
        return sum(one.stat().st_size for one in folder.glob("*.safetensors")) or None
    except OSError:
        return None
