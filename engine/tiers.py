"""Promotion on touch: cold blocks that decode keeps choosing become hot, and others make room for them.

Two thresholds keep a page from going to and fro: ``promote_after`` steps in a row it must have been chosen to become
hot, ``demote_after`` steps it must have been passed over to become cold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.forms import HOT

if TYPE_CHECKING:
    from engine.knobs import Knobs
    from engine.residency import Residency


AGAIN_STEPS = 16
"""A page promoted again within so many steps of its demotion went to and fro in vain."""


class Promoter:
    """``touches`` int32 [layers, blocks, kv_heads]: steps in a row a page was chosen; ``last``: when; ``left``: when
    it was demoted. ``repromotions`` is cumulative.
    """

    def __init__(self, residency: Residency) -> None:
        self.clock = self.repromotions = 0
        self.take(residency)

    def take(self, residency: Residency) -> None:
        """Work with this residency's cache from now on."""
        self.residency = residency
        shape = residency.cache.page_form.shape
        self.touches = torch.zeros(shape, dtype=torch.int32)
        self.last = torch.zeros(shape, dtype=torch.int64)
        self.left = torch.full(shape, -AGAIN_STEPS - 1)
        residency.cache.tables |= {"touches": self.touches, "touched": self.last, "demoted": self.left}

    def after_step(self, choices: list[Tensor], knobs: Knobs) -> None:
        """``choices``: block ids int64 [B, kv_heads, S] (-1 none) per layer. Promotes after ``promote_after`` steps."""
        self.clock += 1
        touched = torch.zeros(self.touches.shape, dtype=torch.bool)
        heads = torch.arange(touched.shape[2])[None, :, None]
        for layer, ids in enumerate(choices):
            chosen = ids >= 0
            touched[layer][ids[chosen], heads.expand_as(ids)[chosen]] = True
        self.touches[:] = torch.where(touched, self.touches + 1, 0)
        self.last[touched] = self.clock
        form = self.residency.cache.page_form
        placed = self.residency.placed[None, :, None]
        whole = [code for code, one in self.residency.cache.forms.items() if one.WHOLE and code != HOT]
        cold = torch.isin(form, torch.tensor(whole, dtype=form.dtype))
        wanted = touched & cold & placed & (self.touches >= knobs.promote_after)
        hot, idle = (form == HOT) & placed, self.clock - self.last >= knobs.demote_after
        budget = ((hot | (cold & placed)).sum((1, 2)) * knobs.hot_share).long()
        for layer in range(form.shape[0]):
            self._exchange(layer, wanted[layer], hot[layer], idle[layer], int(budget[layer]))

    def _exchange(self, layer: int, wanted: Tensor, hot: Tensor, idle: Tensor, budget: int) -> None:
        """Promote ``wanted`` [blocks, heads]; the longest untouched ``idle`` ones of ``hot`` go cold for the budget."""
        block, head = wanted.nonzero(as_tuple=True)
        count = min(len(block), budget, max(0, budget - int((hot & ~idle).sum())))
        if count == 0:
            return
        newest = self.touches[layer][block, head].argsort(descending=True, stable=True)[:count]
        block, head = block[newest], head[newest]
        held_block, held_head = (hot & idle).nonzero(as_tuple=True)
        excess = max(0, int(hot.sum()) + count - budget)
        oldest = self.last[layer][held_block, held_head].argsort(stable=True)[:excess]
        self._demote(layer, held_block[oldest], held_head[oldest])
        self._promote(layer, block, head)

    def _demote(self, layer: int, block: Tensor, head: Tensor) -> None:
        count = self.residency.demote(torch.full_like(block, layer), block, head, self.residency.cold)
        self.left[layer][block[:count], head[:count]] = self.clock

    def _promote(self, layer: int, block: Tensor, head: Tensor) -> None:
        held = self.residency.cache.page_form[layer][block, head]
        for code in torch.unique(held).tolist():
            part = held == code
            if self.residency.promote(torch.full_like(block[part], layer), block[part], head[part], code):
                again = self.clock - self.left[layer][block[part], head[part]] <= AGAIN_STEPS
                self.repromotions += int(again.sum())
