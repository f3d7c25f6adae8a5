"""What selection reads instead of the keys: bounds of the keys of each (sub-)block, or their mean.

The lower and upper bound per channel are those of Quest (arXiv 2406.10774); here they are int8 and stay true bounds.
The mean is that of MoBA (arXiv 2502.13189): half the bytes, no bound, and blind to one key among many.
"""

from __future__ import annotations

import numpy as np
import torch

from engine.geometry import KVGeometry

SUB_TOKENS = 16
KINDS = {"sub_bounds": (2, SUB_TOKENS), "bounds": (2, 0), "sub_mean": (1, SUB_TOKENS), "mean": (1, 0)}
"""By name: rows (2 bounds, 1 mean) and the tokens each stands for (0: the whole block)."""


class Known:
    """Which blocks have representatives: `known` bool [max_blocks]."""

    def __init__(self, max_blocks: int) -> None:
        self.known = torch.zeros(max_blocks, dtype=torch.bool)
        self._known = self.known.numpy()

    @property
    def count(self) -> int:
        """Blocks that have representatives."""
        return int(np.count_nonzero(self._known))

    def forget(self, ids: np.ndarray) -> None:
        self._known[ids] = False

    def learn(self, ids: torch.Tensor) -> None:
        self._known[ids.numpy()] = True


class Representatives(Known):
    """`q` int8 [layers, max_blocks, kv_heads, subs, rows, head_dim]; `scale` float32, to `subs`.

    Two rows are lower and upper bound, one row is the mean.
    """

    def __init__(self, geometry: KVGeometry, max_blocks: int) -> None:
        super().__init__(max_blocks)
        self.geometry = geometry
        lead = (geometry.layers, max_blocks, geometry.kv_heads, geometry.subs_per_block)
        self.q = torch.zeros(*lead, geometry.rep_rows, geometry.head_dim, dtype=torch.int8)
        self.scale = torch.zeros(lead)

    def store(self, ids: torch.Tensor, layer: int, keys: torch.Tensor, filled: torch.Tensor) -> None:
        """Represent keys float32 [n, kv_heads, block_tokens, head_dim], of which the first `filled` [n] slots count.

        A sub-block without a filled slot repeats the one before it, so that it can never win.
        """
        shape = self.geometry
        subs, n = shape.subs_per_block, len(ids)
        slots = keys.view(n, shape.kv_heads, subs, shape.rep_tokens, shape.head_dim)
        empty = (torch.arange(shape.block_tokens) >= filled[:, None]).view(n, 1, subs, shape.rep_tokens, 1)
        rows: tuple[torch.Tensor, ...]
        rows = (mean(slots, empty),) if shape.rep_rows == 1 else bounds(slots, empty)
        if bool((filled < shape.block_tokens).any()):
            last = ((filled - 1) // shape.rep_tokens)[:, None]
            source = torch.minimum(torch.arange(subs)[None], last)[:, None, :, None].expand(rows[0].shape)
            rows = tuple(row.gather(2, source) for row in rows)
        self.q[layer, ids], self.scale[layer, ids] = (
            quantise_mean(rows[0]) if len(rows) == 1 else quantise_bounds(*rows)
        )


def mean(slots: torch.Tensor, empty: torch.Tensor) -> torch.Tensor:
    """Mean of the filled slots, float32 [..., d] from slots [..., tokens, d]; zero where there is none."""
    if not bool(empty.any()):
        return slots.mean(3)
    return slots.masked_fill(empty, 0.0).sum(3) / (~empty).sum(3).clamp_min(1)


def bounds(slots: torch.Tensor, empty: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Lower and upper bound per channel of the filled slots, float32 [..., d] each from slots [..., tokens, d]."""
    if not bool(empty.any()):
        low, high = slots.aminmax(dim=3)
        return low, high
    return slots.masked_fill(empty, torch.inf).amin(3), slots.masked_fill(empty, -torch.inf).amax(3)


def quantise_mean(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """float32 [..., d] -> int8 [..., 1, d] and scale [...]; each value within half a step."""
    scale = rows.abs().amax(-1).div_(127.0).clamp_min(torch.finfo(torch.float32).tiny)
    return (rows / scale[..., None]).round_().to(torch.int8)[..., None, :], scale


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
