"""Keep everything at full precision and read the blocks whose representatives promise most (§2.2b): no memory saved.

Query-aware by nature: each step chooses anew for its own query, so nothing is ever lost for good.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.forms import HOT
from engine.kernels._base import Keep
from engine.policies import _choose
from engine.policies._base import Run

if TYPE_CHECKING:
    from engine.knobs import Knobs


class BlockSparse:
    """See the module. ``representatives`` decides what a block promises by: bounds or mean, whole or 16 tokens each."""

    SPARSE, DYNAMIC = True, True

    def keep(self, knobs: Knobs, block_tokens: int) -> Keep | None:
        return _choose.by_share(knobs, block_tokens)

    def place(self, run: Run, knobs: Knobs) -> Tensor:
        return torch.full(run.importance.shape, HOT, dtype=torch.uint8)


POLICY = BlockSparse()
