"""A global top-k over scores that no rank has all of: each sends its own best, all find the same edge.

A candidate is one int64: the score's bits, made to sort as the score does, above the place, so that ties go to the
lowest place and no two candidates are equal. The best k of all are among the best k of each, so the edge is exact.
"""

from __future__ import annotations

import torch

ABSENT = torch.iinfo(torch.int64).min
LAST_PLACE = 0x7FFFFFFF
ALWAYS = 0x7FFFFFFF
BYTES = 8


def keys(scores: torch.Tensor, places: torch.Tensor, pinned: torch.Tensor) -> torch.Tensor:
    """int64 like `scores` (float32); `places` int32 in the whole context, -1 where there is none."""
    bits = scores.contiguous().view(torch.int32)
    ordered = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long()
    ordered = torch.where(pinned, ALWAYS, ordered)
    made = (ordered << 32) | (LAST_PLACE - places.long())
    return made.masked_fill_(places < 0, ABSENT)


def best(own: torch.Tensor, wanted: int) -> torch.Tensor:
    """The candidates a rank sends: its best `wanted` of `own` [..., n], all of them where there are no more."""
    return own if own.shape[-1] <= wanted else own.topk(wanted, -1, sorted=False).values


def edge(sent: torch.Tensor, wanted: int) -> torch.Tensor:
    """The `wanted`-th best of candidates [..., n]; what reaches it is chosen."""
    return sent.topk(min(wanted, sent.shape[-1]), -1, sorted=False).values.amin(-1)
