"""TensorRT-LLM: blocks of 32 tokens in one pool a kind of window; a window's blocks are freed once they leave it.

A request takes ``ceil(context / 32)`` blocks of full layers and ``ceil((window + 32) / 32)`` of windowed ones; states
take one slot a request. Of the memory that weights leave, 0.9 goes to the cache (``free_gpu_memory_fraction``).
Read from ``_torch/pyexecutor/resource_manager.py`` at 001541b and ``llmapi/llm_args.py``
(``KvCacheConfig``); held against no log.
"""

from __future__ import annotations

from kvscope.plan import kinds
from kvscope.plan.engines._base import Ask, Layout, up
from kvscope.plan.engines.none import _fill
from kvscope.plan.layer import Layer
from kvscope.plan.model import token_bytes

NAME = "trtllm"
VERSION = "001541b"
SOURCE = "tensorrt_llm/_torch/pyexecutor/resource_manager.py, tensorrt_llm/llmapi/llm_args.py"
VERSIONS: tuple[str, ...] = ()
BLOCK = 32


def layout(ask: Ask, stage: int = 0) -> Layout:
    """Round rows up to blocks, add a slot of states."""
    layers, block = ask.stage(stage), ask.options.block_size or BLOCK
    state = sum(ask.state(layer) for layer in layers)
    request = sum(_held(ask, layer, block) for layer in layers) + state
    growing = sum(token_bytes(layer, ask.context, ask.forms, ask.split.attention) for layer in layers)
    rules = (f"blocks of {block} tokens; a window keeps its tokens and one block more",)
    return Layout(growing, state, request, lambda pool: _fill(pool, request, ask.context), rules)


def _held(ask: Ask, layer: Layer, block: int) -> int:
    rows = kinds.rows(layer, ask.context)
    if layer.kind in ("window", "chunk"):
        return min(up(ask.context, block), up(layer.window or 0, block) + block) * ask.row(layer)
    growing = up(rows.growing, block) if layer.ratio == 1 else rows.growing
    return (growing + rows.fixed) * ask.row(layer) + (
        up(rows.index, block) if layer.ratio == 1 else rows.index
    ) * ask.index(layer)
