"""A Hugging Face config.json with typed access; a missing key is named together with the keys that are there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvscope.errors import UsageError, nearest

TEXT_PARTS = ("text_config", "llm_config", "language_config")
"""Where multimodal models keep the part that has a KV cache."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """``values`` of the text model; ``where`` names the file in errors."""

    values: Mapping[str, Any]
    where: str

    @property
    def model_type(self) -> str:
        return str(self.values.get("model_type", ""))

    @property
    def layers(self) -> int:
        return self.whole("num_hidden_layers", "n_layer", "num_layers")

    @property
    def kv_heads(self) -> int:
        """Heads that are kept; a model that names none keeps all of them (MHA)."""
        return self.whole("num_key_value_heads", "num_kv_heads", "num_attention_heads", "n_head")

    @property
    def head_dim(self) -> int:
        if self.has("head_dim"):
            return self.whole("head_dim")
        return self.whole("hidden_size", "n_embd") // self.whole("num_attention_heads", "n_head")

    def has(self, key: str) -> bool:
        """Whether a key is there with a value (null is as good as absent)."""
        return self.values.get(key) is not None

    def whole(self, *keys: str) -> int:
        """Return the first of ``keys`` there is, a positive whole number; UsageError names what was expected."""
        for key in keys:
            if self.has(key):
                value = self.values[key]
                if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                    raise UsageError(f"{self.where}: {key} is {value!r}, expected a positive whole number")
                return value
        present = ", ".join(sorted(self.values)) or "none"
        raise UsageError(
            f"{self.where}: no {' or '.join(keys)}{nearest(keys[0], self.values)}; keys there: {present[:300]}"
        )

    def per_layer(self, key: str) -> list[Any]:
        """Return a list with at least one entry a layer (entries for draft layers behind them are cut off)."""
        value = self.values.get(key)
        if not isinstance(value, list) or len(value) < self.layers:
            got = f"{len(value)} entries" if isinstance(value, list) else repr(value)
            raise UsageError(f"{self.where}: {key} is {got}, expected a list of {self.layers} entries, one a layer")
        return value[: self.layers]


def read_config(path: Path) -> ModelConfig:
    """Read a config.json, or the one in a model's folder; UsageError when it is none."""
    path = path / "config.json" if path.is_dir() else path
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file; expected a Hugging Face config.json") from None
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise UsageError(f"{path}: {error}; expected a Hugging Face config.json") from None
    if not isinstance(values, dict):
        raise UsageError(f"{path}: expected a JSON object, got {type(values).__name__}")
    for part in TEXT_PARTS:
        if isinstance(values.get(part), dict):
            values = values[part]
            break
    return ModelConfig(values, str(path))
