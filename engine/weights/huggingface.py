"""A Hugging Face directory: config.json, safetensors (one file or shards) and tokenizer.json."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine.weights import _text
from engine.weights._base import Loaded
from engine.weights._config import config_of
from engine.weights._names import HUGGINGFACE, assemble

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


class Directory:
    FORM = "PATH of a Hugging Face directory"

    def claims(self, text: str) -> bool:
        return Path(text).is_dir()

    def load(self, text: str, device: str) -> Loaded:
        folder = Path(text)
        values = _text.read_json(folder / "config.json")
        if not values:
            raise ValueError(f"{folder}: no config.json; expected a Hugging Face model directory")
        with ExitStack() as stack:
            files = [stack.enter_context(_open(path)) for path in shards(folder)]
            where = {name: file for file in files for name in file.keys()}  # noqa: SIM118 (not a mapping)
            config = config_of(values, str(folder), "lm_head.weight" in where)

            def fetch(name: str) -> Tensor:
                if name not in where:
                    raise ValueError(f"{folder}: no tensor {name} in its safetensors files")
                tensor: Tensor = where[name].get_tensor(name)
                return tensor

            model = assemble(config, HUGGINGFACE, fetch, device)
        return Loaded(folder.resolve().name, config, model, _text.of_directory(folder, values))


SOURCE = Directory()


def shards(folder: Path) -> list[Path]:
    """The weight files of a directory; ValueError when one that its index names is not there."""
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    named = _text.read_json(folder / INDEX).get("weight_map", {})
    if not named:
        raise ValueError(f"{folder}: no {SINGLE} and no {INDEX}; other weight formats are not read")
    paths = [folder / Path(name).name for name in sorted(set(named.values()))]
    if absent := [path.name for path in paths if not path.is_file()]:
        raise ValueError(f"{folder}: {INDEX} names {', '.join(absent)}, not there")
    return paths


def _open(path: Path) -> Any:
    try:
        return safe_open(path, "pt")
    except SafetensorError as error:
        raise ValueError(f"{path}: not a readable safetensors file ({error})") from None
