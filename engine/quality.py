"""Live probes of quality: by how much tokens win, and, for one request in so many, what the full cache would have said.

Nothing here knows a right answer, so it works for any model and any question. Counters only; ratios are the reader's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from engine.quality_shadow import Shadow, Shadowed

if TYPE_CHECKING:
    from engine.llm import Engine
    from engine.request import Request
    from probes.recorder import Recorder

NARROW = 1.0
"""A token that wins by less is one that small errors can turn."""
GIVEN_UP = 4096
"""Calls without a word of the followed request, after which it is taken to be gone."""
COUNTED: Mapping[str, Callable[[Quality], float]] = {
    "quality.margin_tokens": lambda quality: quality.margin_tokens,
    "quality.margin_sum": lambda quality: quality.margin_sum,
    "quality.narrow_tokens": lambda quality: quality.narrow_tokens,
    "quality.shadow_requests": lambda quality: quality.shadowed.requests,
    "quality.shadow_tokens": lambda quality: quality.shadowed.tokens,
    "quality.shadow_agreed": lambda quality: quality.shadowed.agreed,
    "quality.shadow_kl_sum": lambda quality: quality.shadowed.kl,
    "quality.shadow_margin_sum": lambda quality: quality.shadowed.margin,
    "quality.shadow_full_margin_sum": lambda quality: quality.shadowed.full_margin,
    "quality.shadow_time": lambda quality: quality.shadowed.seconds,
}


class Quality:
    """The engine's `judge` while probes are on. Knobs: ``margin_every`` calls between two looks at the margins;
    ``shadow_every`` requests of which one is followed and run again against the full cache, a chunk a step.
    """

    margin_tokens: int
    narrow_tokens: int
    margin_sum: float
    shadowed: Shadowed

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._calls = self._silent = 0
        self.margin_tokens = self.narrow_tokens = 0
        self.margin_sum = 0.0
        self.shadowed = Shadowed()
        self._followed: Request | None = None
        self._rows: list[Tensor] = []
        self._shadow: Shadow | None = None

    def tokens(self, requests: Sequence[Request], logits: Tensor) -> None:
        """Look at one step's logits [requests, vocab]."""
        knobs = self._engine.knobs
        self._calls += 1
        if knobs.margin_every and self._calls % knobs.margin_every == 0:
            best = logits.topk(2, -1).values
            margins = best[:, 0] - best[:, 1]
            self.margin_tokens += len(margins)
            self.margin_sum += float(margins.sum())
            self.narrow_tokens += int((margins < NARROW).sum())
        if knobs.shadow_every:
            self._follow(requests, logits, knobs.shadow_every)

    def put(self, recorder: Recorder) -> None:
        """Write all counters."""
        for name, of in COUNTED.items():
            recorder.set(name, of(self))

    def _follow(self, requests: Sequence[Request], logits: Tensor, every: int) -> None:
        if self._shadow is not None:
            if self._shadow.advance(self.shadowed):
                self._shadow = None
            return
        if self._followed is None:
            self._followed = next((one for one in requests if one.id % every == 0 and not one.generated), None)
            self._rows, self._silent = [], 0
        followed = self._followed
        if followed is None:
            return
        if followed.finished:
            self._shadow = Shadow(self._engine.config, self._engine.model, followed, self._rows)
            self._followed = None
        elif followed in requests:
            self._silent = 0
            self._rows.append(logits[requests.index(followed)].clone())
        else:
            self._silent += 1
            self._followed = followed if self._silent < GIVEN_UP else None
