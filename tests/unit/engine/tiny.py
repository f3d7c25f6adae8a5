"""A two-layer engine with random weights: everything but the answers is real, and a step takes a millisecond."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.knobs import Knobs
from engine.llm import Engine
from engine.model import Decoder, ModelConfig
from engine.weights.random import random_weights

CONFIG = ModelConfig(
    vocab_size=97,
    hidden=32,
    layers=2,
    q_heads=4,
    kv_heads=2,
    head_dim=16,
    ffn=64,
    rope_base=10000.0,
    norm_eps=1e-5,
    rope_layers=(True, False),
    max_context=512,
)


def engine(
    *,
    pool_blocks: int = 64,
    block_tokens: int = 16,
    max_context: int = 256,
    seed: int = 0,
    config: ModelConfig = CONFIG,
    **knobs: str,
) -> Engine:
    """Build an engine whose pool holds ``pool_blocks`` blocks at full precision."""
    block_bytes = 2 * block_tokens * CONFIG.head_dim * 4 * CONFIG.layers * CONFIG.kv_heads
    base = Knobs(sink_tokens=16, window_tokens=32, min_read_tokens=16, prefill_chunk=48)
    return Engine(
        config,
        random_weights(config, seed),
        base.with_text(knobs),
        pool_bytes=pool_blocks * block_bytes,
        max_context=max_context,
        block_tokens=block_tokens,
    )


def prompt(length: int, seed: int = 1) -> tuple[int, ...]:
    """Random tokens; prompts of one seed share their beginnings."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(0, CONFIG.vocab_size, (length,), generator=generator).tolist())


def run(engine: Engine, limit: int = 5000) -> None:
    """Step until nothing is left to do."""
    for _ in range(limit):
        if not engine.has_work:
            return
        engine.step()
    raise AssertionError(f"still work after {limit} steps")


@torch.inference_mode()
def greedy(model: Decoder, tokens: tuple[int, ...], count: int) -> list[int]:
    """The oracle: recompute everything for every token, in one causal pass, no cache."""

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        group = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        scores = torch.einsum("nhd,mhd->hnm", q, k) * q.shape[-1] ** -0.5
        scores = scores.masked_fill(torch.ones(scores.shape[1:], dtype=torch.bool).triu(1), -torch.inf)
        if model.config.windows and (window := model.config.windows[layer]):
            scores = scores.masked_fill(torch.ones(scores.shape[1:], dtype=torch.bool).tril(-window), -torch.inf)
        return torch.einsum("hnm,mhd->nhd", scores.softmax(-1), v)

    made: list[int] = []
    for _ in range(count):
        ids = torch.tensor([*tokens, *made])
        hidden = model(ids, torch.arange(len(ids)), attend)
        made.append(int(model.logits(hidden[-1:]).argmax()))
    return made
