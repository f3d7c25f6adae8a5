"""What a policy is: one decision about forms, one about reading."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from torch import Tensor

from engine.kernels._base import Keep

if TYPE_CHECKING:
    from engine.knobs import Knobs


class Policy(Protocol):
    """A rule for which KV is kept, where, and in what form."""

    SPARSE: bool
    """Whether decode reads a selection; a dense policy needs no representatives and uses the dense operator."""

    def keep(self, knobs: Knobs, block_tokens: int) -> Keep | None:
        """How much a decode step reads; None means everything."""
        ...

    def place(self, importance: Tensor, knobs: Knobs, block_tokens: int) -> Tensor:
        """Form codes uint8 [layers, blocks, kv_heads] for the consecutive full blocks of one prefix.

        ``importance`` float32 [layers, blocks, kv_heads] is query-blind: the attention mass the prompt's own tokens
        gave each block, sampled while it was prefilled, before any question was seen.
        """
        ...
