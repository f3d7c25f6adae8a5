"""Run a finished request again on the side, against a full cache of its own, and compare what it said.

Its words are fed as they were, so both sides answer to the same text, and every difference is the cache's. The KV of
the second run lies outside the pool and is freed at its end. What a prompt cost once it costs again: sample rarely.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    from engine.model import Decoder, ModelConfig
    from engine.request import Request

CHUNK = 256
"""Tokens of one call: a running batch waits for as long."""


@dataclass(slots=True)
class Shadowed:
    """Cumulative, over tokens compared: ``agreed`` would have been said too, ``kl`` nats, margins of both sides."""

    requests: int = 0
    tokens: int = 0
    agreed: int = 0
    kl: float = 0.0
    margin: float = 0.0
    full_margin: float = 0.0
    seconds: float = 0.0


class Shadow:
    """``rows`` are the logits with which the request's tokens were chosen, one each from its first."""

    def __init__(self, config: ModelConfig, model: Decoder, request: Request, rows: list[Tensor]) -> None:
        self.config, self.model = config, model
        self.first = len(request.prompt) - 1
        self.rows = rows
        self.tokens = request.tokens(0, self.first + len(rows))
        weight = model.embed.weight
        shape = (config.layers, len(self.tokens), config.kv_heads, config.head_dim)
        self.keys, self.values = (torch.empty(shape, dtype=weight.dtype, device=weight.device) for _ in range(2))
        self.start = 0

    @torch.inference_mode()
    def advance(self, done: Shadowed) -> bool:
        """Run one chunk; True when it was the last. Tokens that the prompt's own pass chose are not compared."""
        began = perf_counter()
        end = min(self.start + CHUNK, len(self.tokens))
        device = self.keys.device
        tokens = torch.tensor(self.tokens[self.start : end], device=device)
        hidden = self.model(tokens, torch.arange(self.start, end, device=device), self._attend)
        first = max(self.start, self.first + 1)
        if first < end:
            full = self.model.logits(hidden[first - self.start :]).float()
            live = torch.stack(self.rows[first - self.first : end - self.first]).to(device).float()
            self._compare(full, live, done)
        self.start = end
        done.seconds += perf_counter() - began
        over = end == len(self.tokens)
        done.requests += over
        return over

    def _compare(self, full: Tensor, live: Tensor, done: Shadowed) -> None:
        done.tokens += len(full)
        done.agreed += int((full.argmax(-1) == live.argmax(-1)).sum())
        right, said = full.log_softmax(-1), live.log_softmax(-1)
        done.kl += float((right.exp() * (right - said)).sum(-1).clamp_min(0.0).sum())
        tops = [side.topk(2, -1).values for side in (live, full)]
        margin, full_margin = (float((top[:, 0] - top[:, 1]).sum()) for top in tops)
        done.margin += margin
        done.full_margin += full_margin

    def _attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q [N, q_heads, head_dim], k and v [N, kv_heads, head_dim] → [N, q_heads, head_dim]; exact and causal."""
        end = self.start + len(q)
        self.keys[layer, self.start : end], self.values[layer, self.start : end] = k, v
        heads = self.config.kv_heads
        rows = q.view(len(q), heads, -1, q.shape[-1]).permute(1, 2, 0, 3).flatten(1, 2)
        behind = torch.arange(self.start, end, device=q.device)[:, None] - torch.arange(end, device=q.device)
        window = self.config.windows[layer] if self.config.windows else 0
        seen = ((behind >= 0) & (behind < (window or end))).repeat(rows.shape[1] // len(q), 1)
        keys, values = self.keys[layer, :end].transpose(0, 1), self.values[layer, :end].transpose(0, 1)
        out = F.scaled_dot_product_attention(rows[None], keys[None], values[None], attn_mask=seen)[0]
        mixed: Tensor = out.view(heads, -1, len(q), q.shape[-1]).permute(2, 0, 1, 3).flatten(1, 2)
        return mixed
