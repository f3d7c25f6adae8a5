"""Weights laid out for small batches: what a decode step multiplies by, reordered once instead of at every call.

The operators are those that torch's own compiler emits for the CPU (oneDNN); torch without them keeps plain weights.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.model import Decoder

TYPICAL_ROWS = 8
"""Tokens in a step that the layout is best for; any number is right."""


class Packed(nn.Module):
    """A linear layer whose weight is in an order of its own; it cannot be read back."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), TYPICAL_ROWS)
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return result


def pack(model: Decoder) -> bool:
    """Pack every matrix of a frozen decoder in place; False where it is no float32 on a CPU or torch cannot.

    A head tied to the embedding is copied: one needs rows, the other the packed order. `state_dict` is empty of what
    was packed.
    """
    weight = model.embed.weight
    if weight.device.type != "cpu" or weight.dtype != torch.float32 or not _available(weight):
        return False
    if model.head is None:
        model.head = Packed(weight, None)
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.Linear):
                setattr(module, name, Packed(child.weight, child.bias))
    return True


def _available(weight: Tensor) -> bool:
    """Whether this torch has the operators and they say what plain ones say."""
    try:
        found = Packed(weight[:16], None)(weight[:2])
    except (AttributeError, RuntimeError):
        return False
    return torch.allclose(found, F.linear(weight[:2], weight[:16]), rtol=1e-3, atol=1e-5)
