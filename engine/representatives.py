"""Bounds of the keys in each sub-block: what selection reads instead of the keys.

The lower and upper bound per channel are those of Quest (arXiv 2406.10774); here they are int8 and stay true bounds.
"""

from __future__ import annotations

import numpy as np
import torch

from engine.geometry import KVGeometry


class Representatives:
    """`q` int8 [layers, max_blocks, kv_heads, subs, 2 (lower, upper), head_dim]; `scale` float32, to `subs`."""

    def __init__(self, geometry: KVGeometry, max_blocks: int) -> None:
        self.geometry = geometry
        lead = (geometry.layers, max_blocks, geometry.kv_heads, geometry.subs_per_block)
        self.q = torch.zeros(*lead, 2, geometry.head_dim, dtype=torch.int8)
        self.scale = torch.zeros(lead)
        self.known = torch.zeros(max_blocks, dtype=torch.bool)
        self._known = self.known.numpy()

    @property
    def count(self) -> int:
        """Blocks that have representatives."""
        return int(np.count_nonzero(self._known))

    def forget(self, ids: np.ndarray) -> None:
        self._known[ids] = False

    def store(self, ids: torch.Tensor, layer: int, keys: torch.Tensor, filled: torch.Tensor) -> None:
        """Bounds of keys float32 [n, kv_heads, block_tokens, head_dim], of which the first `filled` [n] slots count.

        A sub-block without a filled slot repeats the one before it, so that it can never win.
        """
        shape = self.geometry
        subs, n = shape.subs_per_block, len(ids)
        slots = keys.view(n, shape.kv_heads, subs, shape.rep_tokens, shape.head_dim)
        low, high = slots.aminmax(dim=3)
        if bool((filled < shape.block_tokens).any()):
            empty = (torch.arange(shape.block_tokens) >= filled[:, None]).view(n, 1, subs, shape.rep_tokens, 1)
            low = slots.masked_fill(empty, torch.inf).amin(3)
            high = slots.masked_fill(empty, -torch.inf).amax(3)
            last = ((filled - 1) // shape.rep_tokens)[:, None]
            source = torch.minimum(torch.arange(subs)[None], last)[:, None, :, None].expand(low.shape)
            low, high = low.gather(2, source), high.gather(2, source)
        self.q[layer, ids], self.scale[layer, ids] = quantise_bounds(low, high)

    def learn(self, ids: torch.Tensor) -> None:
        self._known[ids.numpy()] = True


def quantise_bounds(low: torch.Tensor, high: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """float32 [..., d] each -> int8 [..., 2, d] and scale [...], with q * scale below `low` and above `high`.

    One unit of the int8 range is kept back: rounding of the division can put a bound inside, and it is then moved out.
    """
    scale = torch.maximum(low.abs().amax(-1), high.abs().amax(-1)).div_(126.0)
    unit = scale.clamp_min(torch.finfo(torch.float32).tiny)[..., None]
    scale = unit[..., 0]
    down, up = (low / unit).floor_(), (high / unit).ceil_()
    down -= (down * unit > low).float()
    up += (up * unit < high).float()
    return torch.stack((down, up), -2).to(torch.int8), scale
