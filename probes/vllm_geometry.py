"""How large vLLM's KV pool is in bytes: the page says blocks, the model's configuration says what a block holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_NAN = float("nan")
_CACHE_BYTES = {"fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "int8": 1, "bfloat16": 2, "float16": 2, "float32": 4}


@dataclass(frozen=True, slots=True)
class Shape:
    """The pool of all engines together; a number the configuration does not give is NaN."""

    layers: int
    blocks: float
    block_tokens: float
    capacity_tokens: float
    bytes_per_token: float

    @property
    def pool_bytes(self) -> float:
        return self.blocks * self.block_tokens * self.bytes_per_token


class Geometry:
    """Reads a ``VllmConfig``. Models whose layers do not all keep the same KV have no bytes per token."""

    def __init__(self, config: Any) -> None:
        self._config = config
        self.layers = _layers(config)
        self.groups = groups(config)
        self._bytes_per_token = _bytes_per_token(config) if len(self.groups) == 1 else _NAN

    def now(self, engines: int) -> Shape:
        """Return the pool as it is known now: its size is filled in after the engines have started."""
        cache = self._config.cache_config
        blocks = float(cache.num_gpu_blocks or _NAN)
        block_tokens = float(cache.block_size or _NAN)
        told = getattr(cache, "kv_cache_size_tokens", None)
        capacity = float(told) * engines if told else blocks * block_tokens
        return Shape(self.layers, blocks, block_tokens, capacity, self._bytes_per_token)


def groups(config: Any) -> dict[str, int]:
    """Return the kinds of layers and how many there are of each; one kind where the model names none."""
    text = getattr(config.model_config, "hf_text_config", None)
    kinds = getattr(text, "layer_types", None)
    if not isinstance(kinds, list) or not kinds:
        return {"attention": _layers(config)}
    return {kind: kinds.count(kind) for kind in dict.fromkeys(map(str, kinds))}


def _layers(config: Any) -> int:
    parallel = config.parallel_config
    stages = max(1, int(getattr(parallel, "pipeline_parallel_size", 1)))
    return int(config.model_config.get_num_layers(parallel)) * stages


def _bytes_per_token(config: Any) -> float:
    """Keys and values of one token in all layers and on all ranks; a latent (MLA) is kept once, on every rank."""
    model, parallel = config.model_config, config.parallel_config
    itemsize = _CACHE_BYTES.get(str(config.cache_config.cache_dtype).removeprefix("torch."))
    if itemsize is None:
        itemsize = int(getattr(model.dtype, "itemsize", 0))
    if not itemsize:
        return _NAN
    ranks = max(1, int(getattr(parallel, "tensor_parallel_size", 1)))
    kept = 1 if getattr(model, "use_mla", False) else 2
    per_layer = kept * int(model.get_num_kv_heads(parallel)) * int(model.get_head_size()) * itemsize * ranks
    return float(per_layer * _layers(config))
