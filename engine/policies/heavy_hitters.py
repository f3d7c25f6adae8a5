"""Keep the blocks that have drawn most attention so far, drop the others (§2.2c; H2O, arXiv 2306.14048, by blocks).

With ``importance`` blind it is the prompt's own tokens that vote, before any question; with aware the question and the
queries of decode vote too. A later question about what an earlier one passed over finds it gone either way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.forms import EVICTED, HOT
from engine.kernels._base import Keep
from engine.policies import _choose
from engine.policies._base import Run

if TYPE_CHECKING:
    from engine.knobs import Knobs


class HeavyHitters:
    """See the module. ``kept_share`` of the blocks stay, sinks and window among them."""

    SPARSE, DYNAMIC = True, True

    def keep(self, knobs: Knobs, block_tokens: int) -> Keep | None:
        return None

    def place(self, run: Run, knobs: Knobs) -> Tensor:
        # A block nobody has voted on yet counts as an average one: dropping the newest first would be a bias.
        seen = run.importance > 0
        mean = run.importance.sum(1, keepdim=True) / seen.sum(1, keepdim=True).clamp_min(1)
        rank = _choose.ranks(torch.where(seen, run.importance, mean), _choose.pinned_ends(run, knobs))
        return torch.where(rank < _choose.kept_blocks(run, knobs), HOT, EVICTED).to(torch.uint8)


POLICY = HeavyHitters()
