"""For conversations (§6.3): the system prompt and the last two turns stay at full precision, earlier turns are treated
as in `combined`. A turn is compressed once, when it is no longer one of the last two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.kernels._base import Keep
from engine.policies import _choose
from engine.policies._base import Run

if TYPE_CHECKING:
    from engine.knobs import Knobs

RECENT_TURNS = 2


class TurnAware:
    """See the module. Without turns it is `combined`."""

    SPARSE, DYNAMIC = True, True

    def keep(self, knobs: Knobs, block_tokens: int) -> Keep | None:
        return _choose.by_share(knobs, block_tokens)

    def place(self, run: Run, knobs: Knobs) -> Tensor:
        return _choose.by_rank(run, knobs, _choose.pinned_ends(run, knobs) | self._recent(run))

    def _recent(self, run: Run) -> Tensor:
        """bool [blocks]: blocks with a token of the system prompt or of the last two turns."""
        if len(run.turns) < 2:
            return torch.zeros(run.blocks, dtype=torch.bool)
        first = torch.arange(run.blocks) * run.block_tokens
        return (first < run.turns[1]) | (first + run.block_tokens > run.turns[-RECENT_TURNS:][0])


POLICY = TurnAware()
