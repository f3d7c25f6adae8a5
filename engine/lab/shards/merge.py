"""Parts of one attention brought together by the logarithm of their sums of exponentials."""

from __future__ import annotations

import torch


def merge(out: torch.Tensor, log_sum: torch.Tensor) -> torch.Tensor:
    """out float32 [parts, ..., d], each normalised by itself, log_sum [parts, ...] -> [..., d], in the order of parts.

    A part that read nothing has a log_sum of -inf; at least one must have read something.
    """
    weight = (log_sum - log_sum.amax(0)).exp()
    whole, total = out[0] * weight[0][..., None], weight[0]
    for part in range(1, len(out)):
        whole = whole + out[part] * weight[part][..., None]
        total = total + weight[part]
    return whole / total[..., None]
