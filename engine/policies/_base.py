"""What a policy is: one decision about forms, one about reading."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from torch import Tensor

from engine.kernels._base import Keep

if TYPE_CHECKING:
    from engine.knobs import Knobs


@dataclass(frozen=True, slots=True)
class Run:
    """The consecutive full blocks of one context, from its first token.

    ``importance`` float32 [layers, blocks, kv_heads] is attention mass: query-blind (what the prompt's own tokens gave
    each block while it was prefilled, before any question was seen) or query-aware (the question and the queries of
    decode voted too), as the knob ``importance`` says. ``turns`` are the first tokens of a conversation's turns, the
    system prompt's first; empty when there is no conversation.
    """

    importance: Tensor
    block_tokens: int
    turns: tuple[int, ...] = ()

    @property
    def blocks(self) -> int:
        return self.importance.shape[1]


class Policy(Protocol):
    """A rule for which KV is kept, where, and in what form."""

    SPARSE: bool
    """Whether decode reads or keeps a part; a dense policy needs no representatives and uses the dense operator."""

    DYNAMIC: bool
    """Whether forms are decided again as a context grows (never upward); otherwise once, and later blocks go cold."""

    def keep(self, knobs: Knobs, block_tokens: int) -> Keep | None:
        """How much a decode step reads; None means everything that is there."""
        ...

    def place(self, run: Run, knobs: Knobs) -> Tensor:
        """Form codes uint8 [layers, blocks, kv_heads] for a run."""
        ...
