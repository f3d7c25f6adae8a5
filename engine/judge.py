"""Who hears the logits of every token while the engine accepts it: probes of quality, benches that score answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from engine.request import Request


class Judge(Protocol):
    def tokens(self, requests: Sequence[Request], logits: Tensor) -> None:
        """One row of ``logits`` [requests, vocab] a request, for the token it has not accepted yet."""
        ...
