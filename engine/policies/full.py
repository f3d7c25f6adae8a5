"""Keep everything at full precision, read everything: the baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.forms import HOT
from engine.kernels._base import Keep
from engine.policies._base import Run

if TYPE_CHECKING:
    from engine.knobs import Knobs


class Full:
    """See the module."""

    SPARSE, DYNAMIC = False, False

    def keep(self, knobs: Knobs, block_tokens: int) -> Keep | None:
        return None

    def place(self, run: Run, knobs: Knobs) -> Tensor:
        return torch.full(run.importance.shape, HOT, dtype=torch.uint8)


POLICY = Full()
