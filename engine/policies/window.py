"""Keep the first tokens and the recent ones (§2.2a, StreamingLLM's sinks, arXiv 2309.17453), drop what lies between."""

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


class Window:
    """Blind to content. The window is ``kept_share`` of the context, never less than ``window_tokens``."""

    SPARSE, DYNAMIC = True, True

    def keep(self, knobs: Knobs, block_tokens: int) -> Keep | None:
        return None

    def place(self, run: Run, knobs: Knobs) -> Tensor:
        sinks, _ = _choose.ends(run, knobs)
        recent = _choose.kept_blocks(run, knobs) - sinks
        place = torch.arange(run.blocks)
        kept = (place < sinks) | (place >= run.blocks - recent)
        codes = torch.where(kept, HOT, EVICTED).to(torch.uint8)
        return codes[None, :, None].expand(run.importance.shape).clone()


POLICY = Window()
