"""What several policies share: sinks and window, ranks, and how much a step reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine import forms
from engine.forms import EVICTED, HOT
from engine.kernels._base import Keep
from engine.policies._base import Run

if TYPE_CHECKING:
    from engine.knobs import Knobs


def by_share(knobs: Knobs, block_tokens: int) -> Keep:
    """Read ``kept_share`` of the blocks; with a static structure ``static_blocks`` of them, whatever the context."""
    # A short context's share would be all sinks and window, with nothing left to choose.
    least = max(1, -(-knobs.min_read_tokens // block_tokens))
    fixed = knobs.static_blocks if knobs.structure == "static" else 0
    return Keep(knobs.kept_share, knobs.sink_tokens, knobs.window_tokens, least, block_tokens, fixed)


def ends(run: Run, knobs: Knobs) -> tuple[int, int]:
    """How many blocks at the start are sinks, and at the end the window; they never overlap."""
    sinks = min(run.blocks, -(-knobs.sink_tokens // run.block_tokens))
    return sinks, min(run.blocks - sinks, -(-knobs.window_tokens // run.block_tokens))


def kept_blocks(run: Run, knobs: Knobs) -> int:
    """How many blocks a policy that drops the rest keeps of a run, sinks and window included."""
    least = max(sum(ends(run, knobs)), -(-knobs.min_read_tokens // run.block_tokens))
    return min(run.blocks, max(round(knobs.kept_share * run.blocks), least))


def ranks(score: Tensor, pinned: Tensor) -> Tensor:
    """Place in the order of score [layers, blocks, kv_heads], best 0; blocks ``pinned`` bool [blocks] come first."""
    score = score.masked_fill(pinned[None, :, None], torch.inf)
    return score.argsort(dim=1, descending=True, stable=True).argsort(dim=1)


def pinned_ends(run: Run, knobs: Knobs) -> Tensor:
    """bool [blocks]: sinks and window."""
    sinks, window = ends(run, knobs)
    place = torch.arange(run.blocks)
    return (place < sinks) | (place >= run.blocks - window)


def by_rank(run: Run, knobs: Knobs, pinned: Tensor) -> Tensor:
    """The best ``hot_share`` of the blocks hot, the worst ``evict_share`` gone, the others in the cold form."""
    rank = ranks(run.importance, pinned)
    hot = max(int(pinned.sum()), round(knobs.hot_share * run.blocks))
    evicted = min(run.blocks - hot, round(knobs.evict_share * run.blocks))
    placed = torch.full(run.importance.shape, forms.get(knobs.cold_form).CODE, dtype=torch.uint8)
    placed[rank < hot] = HOT
    placed[rank >= run.blocks - evicted] = EVICTED
    return placed
