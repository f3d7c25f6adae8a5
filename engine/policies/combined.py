"""The article's combination (§2.2, §2.3): sinks, a recent window and the most important blocks hot; the rest in the
cold form (int8, int4, low rank or merged); the least important evicted when asked; decode reads the blocks whose
representatives promise most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from engine.kernels._base import Keep
from engine.policies import _choose
from engine.policies._base import Run

if TYPE_CHECKING:
    from engine.knobs import Knobs


class Combined:
    """See the module. ``hot_share`` counts sinks and window in; ``evict_share`` is taken from the least important."""

    SPARSE, DYNAMIC = True, False

    def keep(self, knobs: Knobs, block_tokens: int) -> Keep | None:
        return _choose.by_share(knobs, block_tokens)

    def place(self, run: Run, knobs: Knobs) -> Tensor:
        return _choose.by_rank(run, knobs, _choose.pinned_ends(run, knobs))


POLICY = Combined()
