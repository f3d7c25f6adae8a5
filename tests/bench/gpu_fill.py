"""An 8B engine on a CUDA device whose requests were never prefilled: their keys and values are random numbers.

Everything but the forward pass of the prompt is the engine's own: admission, blocks, representatives, placing by policy
with its quantisation, and every decode step.
"""

from __future__ import annotations

from time import monotonic

import torch

from engine.devices._base import Device
from engine.forms import HOT
from engine.knobs import Knobs
from engine.llm import Engine
from engine.model import Decoder, ModelConfig
from engine.request import Request

TOKENS, STEPS = 64, 200
PART = 8192


def engine_for(config: ModelConfig, model: Decoder, device: Device, batch: int, context: int, **changes: str) -> Engine:
    """Warmed up, every request filled to 96 to 160 tokens short of `context`: blocks fill up in different steps."""
    knobs = {
        "max_running": str(batch), "prefill_chunk": str(context), "prefix_cache": "off", "kept_share": "0.25",
        "hot_share": "0.25", "sink_tokens": "64", "window_tokens": "64", "min_read_tokens": "0",
        "representatives": "mean", "watermark": "0.0", "kernels": "block", **changes,
    }  # fmt: skip
    longest = context + STEPS
    page = 2 * TOKENS * config.head_dim * 2
    pool = (batch * (longest // TOKENS + 2) + 8) * config.layers * config.kv_heads * page
    engine = Engine(
        config, model, Knobs().with_text(knobs), pool_bytes=pool, max_context=longest, block_tokens=TOKENS,
        device=device,
    )  # fmt: skip
    engine.warm_up()
    with torch.inference_mode():
        for number in range(batch):
            engine.submit(tuple((number + i) % 1000 for i in range(context - 96 - 8 * number % 64)), STEPS)
            plan = engine.scheduler.schedule(monotonic())
            assert plan.prefill, "a request was not admitted: the pool is too small"
            for request, start, end in plan.prefill:
                fill(engine, request, start, end)
    return engine


def fill(engine: Engine, request: Request, start: int, end: int) -> None:
    """As if tokens [start, end), the rest of the prompt, had been computed; one token came of it."""
    cache, shape = engine.cache, engine.cache.geometry
    ids = torch.tensor(request.block_table[: shape.blocks_for(end)])
    assert bool((cache.page_form[:, ids] == HOT).all())
    pages = (cache.page_offset[:, ids] // shape.hot_page_bytes).flatten().to(cache.device)
    for part in pages.split(PART):
        size = (len(part), 2, shape.block_tokens, shape.head_dim)
        cache.pools(())[0].hot[part] = torch.randn(size, dtype=getattr(torch, shape.dtype), device=cache.device)
    slots = torch.arange(start, end)
    cache.wrote(ids[slots // shape.block_tokens].numpy(), (slots % shape.block_tokens).numpy())
    cache.finalise(ids[: end // shape.block_tokens])
    engine.residency.importance[:, ids] = torch.rand(shape.layers, len(ids), shape.kv_heads)
    request.computed = end
    engine.scheduler.computed(request)
    engine.accept([request], [1], torch.empty(0))
