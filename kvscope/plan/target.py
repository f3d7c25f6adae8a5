"""What a person gives to `kvscope plan`: a config, a folder, a cached model, a GGUF file, a server or its log."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from kvscope.errors import UsageError
from kvscope.plan import gguf, gguf_model
from kvscope.plan.config import read_config
from kvscope.plan.model import Geometry, geometry
from kvscope.plan.weights import measured
from probes import border

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
    from kvscope.plan import served

    if text.startswith(("http://", "https://")):
        return served.from_server(text, config)
    path = Path(text)
    if path.is_file() and not _is_model(path):
        return served.from_log(path, config)
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
