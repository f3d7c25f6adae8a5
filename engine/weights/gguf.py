"""A GGUF file: Llama, Mistral, SmolLM, Qwen2 and Qwen3 in the types that `engine.quants` reads."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.gguf import GGUFFile
from engine.model import ModelConfig
from engine.weights import _text
from engine.weights._base import Loaded
from engine.weights._names import GGUF, assemble
from probes import border

ARCHITECTURES = ("llama", "qwen2", "qwen3")
INTERLEAVED = ("llama",)
"""Whose files keep the two halves of a rotated pair side by side; the decoder keeps them half a head apart."""


class File:
    FORM = "PATH of a .gguf file"

    def claims(self, text: str) -> bool:
        return text.endswith(".gguf") and Path(text).is_file()

    def load(self, text: str, device: str) -> Loaded:
        return load_file(Path(text), device)


SOURCE = File()


def load_file(path: Path, device: str = "cpu", name: str = "") -> Loaded:
    """Load a file as `name` (its own name if none); ValueError says what is unsupported or damaged."""
    file = GGUFFile(path)
    config = config_of(file)
    heads = {"attn_q": config.q_heads, "attn_k": config.kv_heads}
    interleaved = file.metadata["general.architecture"] in INTERLEAVED

    def fetch(tensor: str) -> Tensor:
        values = file.tensor(tensor)
        part = tensor.split(".")[2] if tensor.startswith("blk.") else ""
        if interleaved and part in heads:
            values = halves_apart(values, heads[part])
        return torch.from_numpy(values if values.flags.writeable else values.copy())

    model = assemble(config, GGUF, fetch, device)
    return Loaded(name or path.stem, config, model, _text.of_gguf(file))


def halves_apart(rows: np.ndarray, heads: int) -> np.ndarray:
    """Reorder the rows of each head from (x0, y0, x1, y1, ...) to (x0, x1, ..., y0, y1, ...)."""
    pairs = rows.reshape(heads, -1, 2, *rows.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)


def config_of(file: GGUFFile) -> ModelConfig:
    """The shape a file declares; ValueError names what is missing or not supported."""
    kind = file.metadata.get("general.architecture")
    if kind not in ARCHITECTURES:
        near = get_close_matches(str(kind), ARCHITECTURES, n=1)
        hint = f", nearest is {near[0]!r}" if near else ""
        raise ValueError(f"{file.path}: architecture {kind!r}; supported: {', '.join(ARCHITECTURES)}{hint}")
    of = _Keys(file, str(kind))
    if of.get("expert_count", 0):
        raise ValueError(f"{file.path}: a mixture of experts; only dense models are supported")
    if (scaling := of.get("rope.scaling.type", "none")) not in ("none", "linear"):
        raise ValueError(f"{file.path}: rope scaling {scaling!r}; supported: none, linear")
    hidden, layers, q_heads = (
        of.count("embedding_length"),
        of.count("block_count", 4096),
        of.count("attention.head_count"),
    )
    head_dim = of.count("attention.key_length", default=hidden // q_heads)
    if of.get("rope.dimension_count", head_dim) != head_dim:
        raise ValueError(f"{file.path}: rotates {of['rope.dimension_count']} of {head_dim} dimensions; expected all")
    window = of.count("attention.sliding_window", default=0)
    if "token_embd.weight" not in file.tensors or not file.tensors["token_embd.weight"].shape:
        raise ValueError(f"{file.path}: no tensor token_embd.weight; expected a whole model")
    return ModelConfig(
        vocab_size=file.tensors["token_embd.weight"].shape[0],
        hidden=hidden,
        layers=layers,
        q_heads=q_heads,
        kv_heads=of.count("attention.head_count_kv", default=q_heads),
        head_dim=head_dim,
        ffn=of.count("feed_forward_length"),
        rope_base=border.number(of.get("rope.freq_base", 10000.0), "rope.freq_base", 1e-6),
        norm_eps=border.number(of["attention.layer_norm_rms_epsilon"], "attention.layer_norm_rms_epsilon", 0.0, 1.0),
        rope_layers=(True,) * layers,
        max_context=of.count("context_length", 1 << 30),
        tied="output.weight" not in file.tensors,
        qkv_bias="blk.0.attn_q.bias" in file.tensors,
        out_bias="blk.0.attn_output.bias" in file.tensors,
        qk_norm="blk.0.attn_q_norm.weight" in file.tensors,
        windows=(window,) * layers if window else (),
        rope_divisors=_divisors(file, of, head_dim // 2),
    )


def _divisors(file: GGUFFile, of: _Keys, pairs: int) -> tuple[float, ...]:
    if "rope_freqs.weight" in file.tensors:
        return tuple(file.tensor("rope_freqs.weight").tolist())
    if of.get("rope.scaling.type", "none") == "linear":
        return (border.number(of["rope.scaling.factor"], "rope.scaling.factor", 1e-6),) * pairs
    return ()


class _Keys:
    """Metadata under the architecture's own prefix; a missing key is a ValueError that names it."""

    def __init__(self, file: GGUFFile, kind: str) -> None:
        self.path, self.kind = file.path, kind
        self.metadata: Mapping[str, Any] = file.metadata

    def __getitem__(self, name: str) -> Any:
        try:
            return self.metadata[f"{self.kind}.{name}"]
        except KeyError:
            raise ValueError(f"{self.path}: no {self.kind}.{name} in its metadata") from None

    def count(self, name: str, most: int = 1 << 20, default: int | None = None) -> int:
        """A whole number of at least 1 (or the default); ValueError."""
        value = self[name] if default is None else self.get(name, default)
        return (
            default
            if value == default and default is not None
            else border.whole(value, f"{self.path}: {name}", 1, most)
        )

    def get(self, name: str, default: Any) -> Any:
        return self.metadata.get(f"{self.kind}.{name}", default)
