"""The article's combination (§2.2, §2.3): sinks, a recent window and the most important blocks hot; the rest cold int8;
the least important evicted when asked; decode reads the blocks whose representatives promise most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.forms import EVICTED
from engine.forms.cold_int8 import CODE as COLD
from engine.forms.hot import CODE as HOT
from engine.kernels._base import Keep

if TYPE_CHECKING:
    from engine.knobs import Knobs


class Combined:
    """See the module. ``hot_share`` counts sinks and window in; ``evict_share`` is taken from the least important."""

    SPARSE = True

    def keep(self, knobs: Knobs, block_tokens: int) -> Keep | None:
        # A short context's share would be all sinks and window, with nothing left to choose.
        least = max(1, -(-knobs.min_read_tokens // block_tokens))
        return Keep(knobs.kept_share, knobs.sink_tokens, knobs.window_tokens, least, block_tokens)

    def place(self, importance: Tensor, knobs: Knobs, block_tokens: int) -> Tensor:
        layers, blocks, heads = importance.shape
        sinks = min(blocks, -(-knobs.sink_tokens // block_tokens))
        window = min(blocks - sinks, -(-knobs.window_tokens // block_tokens))
        score = importance.clone()
        score[:, :sinks] = torch.inf
        score[:, blocks - window :] = torch.inf
        rank = score.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
        hot = max(sinks + window, round(knobs.hot_share * blocks))
        evicted = min(blocks - hot, round(knobs.evict_share * blocks))
        forms = torch.full((layers, blocks, heads), COLD, dtype=torch.uint8)
        forms[rank < hot] = HOT
        forms[rank >= blocks - evicted] = EVICTED
        return forms


POLICY = Combined()
