"""Promotion on touch: cold blocks that decode keeps choosing become hot, and others make room for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.forms.cold_int8 import CODE as COLD
from engine.forms.hot import CODE as HOT

if TYPE_CHECKING:
    from engine.knobs import Knobs
    from engine.residency import Residency


class Promoter:
    """``touches`` int32 [layers, blocks, kv_heads]: steps in a row a page was chosen; ``last``: when."""

    def __init__(self, residency: Residency) -> None:
        self.residency = residency
        shape = residency.cache.page_form.shape
        self.touches = torch.zeros(shape, dtype=torch.int32)
        self.last = torch.zeros(shape, dtype=torch.int64)
        self.clock = 0

    def after_step(self, choices: list[Tensor], knobs: Knobs) -> None:
        """``choices``: block ids int64 [B, kv_heads, S] (-1 none) per layer. Promotes after ``promote_after`` steps."""
        self.clock += 1
        touched = torch.zeros(self.touches.shape, dtype=torch.bool)
        heads = torch.arange(touched.shape[2])[None, :, None]
        for layer, ids in enumerate(choices):
            chosen = ids >= 0
            touched[layer][ids[chosen], heads.expand_as(ids)[chosen]] = True
        self.touches = torch.where(touched, self.touches + 1, 0)
        self.last[touched] = self.clock
        form = self.residency.cache.page_form
        placed = self.residency.placed[None, :, None]
        wanted = touched & (form == COLD) & placed & (self.touches >= knobs.promote_after)
        budget = self._budget(form, placed, knobs.hot_share)
        for layer in range(form.shape[0]):
            self._exchange(layer, wanted[layer], (form[layer] == HOT) & placed[0], int(budget[layer]))

    def _budget(self, form: Tensor, placed: Tensor, hot_share: float) -> Tensor:
        """Hot pages each layer may have among the placed ones: int64 [layers]."""
        stored = ((form == HOT) | (form == COLD)) & placed
        return (stored.sum((1, 2)) * hot_share).long()

    def _exchange(self, layer: int, wanted: Tensor, hot: Tensor, budget: int) -> None:
        """Promote ``wanted`` [blocks, heads]; the longest untouched of ``hot`` go cold so that the budget holds."""
        block, head = wanted.nonzero(as_tuple=True)
        count = min(len(block), budget)
        if count == 0:
            return
        newest = self.touches[layer][block, head].argsort(descending=True, stable=True)[:count]
        block, head = block[newest], head[newest]
        held_block, held_head = hot.nonzero(as_tuple=True)
        excess = max(0, len(held_block) + count - budget)
        oldest = self.last[layer][held_block, held_head].argsort(stable=True)[:excess]
        here = torch.full((max(excess, count),), layer)
        self.residency.demote(here[:excess], held_block[oldest], held_head[oldest])
        self.residency.promote(here[:count], block, head)
