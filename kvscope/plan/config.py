"""A Hugging Face config.json with typed access; it knows which of its keys somebody has read.

A key that may decide what a cache holds and that nobody read is a reason to refuse the model: see ``unread``.
"""

from __future__ import annotations

import difflib
import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvscope import kv_types
from kvscope.errors import UsageError, nearest
from probes import border

TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config", "language_model")
"""Where multimodal models keep the part that has a KV cache."""
DECIDES = re.compile(
    r"window|swa|attention_chunk|layer_types|layers_block_type|layer_pattern|override_pattern|attn_layer|attention_layer|"
    r"attn_type|attention_type|linear_attn|linear_num|linear_key|linear_value|lightning|mamba|ssm_|conv_kernel|d_conv|"
    r"conv_l_cache|(^|_)kv_|key_value|num_kv|head_dim|head_size|lora_rank|compress|^index_|indexer|use_cla|cla_share|"
    r"share_kv|shared_kv|sparse_attention|full_attention|state_size|block_configs|n_head_kv|multi_query"
)
"""Keys that can change what a layer keeps."""
HARMLESS = re.compile(
    r"vision|audio|image|video|rope|dropout|_bias$|init|norm|kv_cache_scheme|kv_transfer|head_dim_scale|q_lora_rank|"
    r"window_attn_skip|mup|freeze|moe|lm_head|hidden_act|proj|_dt_|chunk_size|mlp_|_rms|use_mamba|multiplier|_(alpha|beta)(_factor)?$"
)
OF_ALL = ("num_attention_heads", "num_key_value_heads", "head_dim")
"""Keys every family knows, though one whose layers are all recurrent may not read them."""
OF_MANY = (*OF_ALL, "sliding_window", "layer_types", "num_kv_shared_layers", "kv_lora_rank")
"""Keys whose misspelling is looked for even where a family does not ask for them."""
MISSPELT = 0.9
DEFAULTS_OF = "transformers 5.24.0"
"""Whose configuration classes (``models/*/configuration_*.py``) ``defaults.json`` repeats."""
LARGEST = 1 << 24
"""No count in a config is larger (a million of layers or heads is no model); contexts may be."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """``values`` of the text model, ``outer`` those of the whole file; ``where`` names the file in errors."""

    values: Mapping[str, Any]
    where: str
    outer: Mapping[str, Any] = field(default_factory=dict)
    read: set[str] = field(default_factory=set, compare=False)
    assumed: list[str] = field(default_factory=list, compare=False)

    @property
    def model_type(self) -> str:
        """The text model's type; that of the file where the part names none."""
        return str(self.values.get("model_type") or self.outer.get("model_type") or "")

    @property
    def layers(self) -> int:
        keys = ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "num_transformer_layers")
        words = self.values.get("layers_block_type")
        if isinstance(words, list) and words and not any(self.has(key) for key in keys):
            return len(words)
        return self.whole(*keys)

    def has(self, key: str) -> bool:
        """Whether a key is there with a value (null is as good as absent); counts as read."""
        self.read.add(key)
        return self.values.get(key) is not None

    def get(self, key: str) -> Any:
        """Return a value as it is, or what the model's class has where the file has none."""
        return self.values[key] if self.has(key) else self._default(key)

    def flag(self, key: str) -> bool:
        """Return a boolean, False where there is none."""
        value = self.get(key)
        if value is not None and not isinstance(value, bool):
            raise UsageError(f"{self.where}: {key} is {value!r}, expected true or false")
        return bool(value)

    def number_type(self, key: str) -> str | None:
        """Return the name of a number type, None where none is said; UsageError for one that nobody knows."""
        value = self.get(key)
        if value is None:
            return None
        found = kv_types.find(value) if isinstance(value, str) else None
        if found is None:
            raise self.refuse(key, "the name of a number type, as float32")
        return found.name

    def whole(self, *keys: str, least: int = 1) -> int:
        """Return the first of ``keys`` there is, a whole number; UsageError names what was expected."""
        found = self.maybe(*keys, least=least)
        if found is None:
            present = ", ".join(sorted(map(str, self.values))) or "none"
            raise UsageError(
                f"{self.where}: model type {self.model_type!r} without {' or '.join(keys)}"
                f"{nearest(keys[0], map(str, self.values))}; keys there: {present[:300]}"
            )
        return found

    def maybe(self, *keys: str, least: int = 1) -> int | None:
        """Return the first of ``keys`` there is, else the class's default of the first that has one, else None."""
        for key in keys:
            if self.has(key):
                return self._checked(key, self.values[key], least)
        for key in keys:
            value = self._default(key)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
        return None

    def per_layer(self, key: str) -> list[Any]:
        """Return a list with at least one entry a layer (entries for draft layers behind them are cut off)."""
        value = self.get(key)
        if not isinstance(value, list) or len(value) < self.layers:
            got = f"{len(value)} entries" if isinstance(value, list) else repr(value)[:80]
            raise UsageError(f"{self.where}: {key} is {got}, expected a list of {self.layers} entries, one a layer")
        return value[: self.layers]

    def part(self, key: str) -> ModelConfig:
        """Return a nested object, sharing what is noted; UsageError when it is none."""
        value = self.get(key)
        if not isinstance(value, dict):
            raise UsageError(f"{self.where}: {key} is {value!r:.80}, expected an object")
        return ModelConfig(value, f"{self.where}: {key}", self.outer or self.values, assumed=self.assumed)

    def assume(self, note: str) -> None:
        """Note something that the file does not say."""
        if note not in self.assumed:
            self.assumed.append(note)

    def unread(self) -> list[str]:
        """Keys that can decide what a layer keeps, are set, and were read by nobody: also misspelt ones."""
        missing = [key for key in {*self.read, *OF_MANY} if key not in self.values]
        return [
            key
            for key, value in self.values.items()
            if key not in self.read and key not in OF_ALL and value not in (None, False, 0, "", [], {})
            if not HARMLESS.search(key.lower())
            and (DECIDES.search(key.lower()) or difflib.get_close_matches(key, missing, n=1, cutoff=MISSPELT))
        ]

    def refuse(self, key: str, expected: str) -> UsageError:
        """Return the error for a key whose value is not understood."""
        value = self.values.get(key)
        return UsageError(f"{self.where}: model type {self.model_type!r}: {key} is {value!r:.80}; expected {expected}")

    def _default(self, key: str) -> Any:
        if key in self.values:
            return None
        value = _defaults().get(self.model_type, {}).get(key)
        if value is not None and value != 0 and value is not False:
            self.assume(f"{key} is not in the config: {value}, the default of {self.model_type} ({DEFAULTS_OF})")
        return value

    def _checked(self, key: str, value: Any, least: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
            raise UsageError(
                f"{self.where}: {key} is {value!r:.80}, expected a "
                f"{'positive ' if least else ''}whole number up to {LARGEST}"
            )
        return value


def read_config(source: Path | Mapping[str, Any]) -> ModelConfig:
    """Read a config.json, the one in a model's folder, or its parsed content; UsageError when it is none."""
    if isinstance(source, Mapping):
        return _text_part(source, "config")
    path = source / "config.json" if source.is_dir() else source
    try:
        values = border.document(border.read_file(path), str(path))
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file; expected a Hugging Face config.json") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: {str(error)[:200]}; expected a Hugging Face config.json") from None
    if not isinstance(values, dict):
        raise UsageError(f"{path}: expected a JSON object, got {type(values).__name__}")
    return _text_part(_with_quantisation(values, path), str(path))


def _with_quantisation(values: dict[str, Any], path: Path) -> dict[str, Any]:
    """Add what ModelOpt writes beside a config: ``hf_quant_config.json``."""
    beside = path.with_name("hf_quant_config.json")
    if path.name != "config.json" or "quantization_config" in values or not beside.is_file():
        return values
    try:
        found = border.document(border.read_file(beside), str(beside))
    except (OSError, ValueError, RecursionError):
        return values
    return {**values, "quantization_config": found} if isinstance(found, dict) else values


def _text_part(values: Mapping[str, Any], where: str) -> ModelConfig:
    """Go down to the part that has the cache, two levels at most (Omni models nest twice)."""
    inner = values
    for _ in range(2):
        part = next((inner[name] for name in TEXT_PARTS if isinstance(inner.get(name), dict)), None)
        if part is None:
            break
        inner = part
    return ModelConfig(inner, where, values)


@functools.cache
def _defaults() -> dict[str, dict[str, Any]]:
    """Return by model type what its class has where a published config leaves a key out.

    Only what decides a cache's size stands in the file; numbers of layers never.
    """
    found: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("defaults.json").read_text())
    return found
