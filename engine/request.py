"""One generation task, from arrival to its last token."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.prefix import BlockKey
from engine.sampler import GREEDY, Sampling

Check = Callable[[int, int], bool]
"""(previous token, generated token) → whether it is right."""
Listener = Callable[["Request", int], bool]
"""(request, token just generated) → whether the answer ends here; called inside the step, so it must be brief."""


@dataclass(eq=False)
class Request:
    """A prompt, what was generated for it so far, and the blocks that hold its KV. Times are monotonic seconds.

    ``computed`` counts the tokens whose KV is stored; a request decodes once it reaches all tokens but the last.
    ``placed`` counts leading blocks whose form the policy has decided, ``forgotten`` those without pages where a
    layer's window has left them behind. ``stopped`` says that the answer ended before its length: a stop token, or a
    listener that had heard enough.
    """

    id: int
    prompt: tuple[int, ...]
    max_new_tokens: int
    arrival_s: float
    check: Check | None = None
    sampling: Sampling = GREEDY
    listener: Listener | None = None
    stopped: bool = False
    turns: tuple[int, ...] = ()
    """First tokens of a conversation's turns, the system prompt's first; empty when there is no conversation."""
    numbers: random.Random | None = field(init=False)
    generated: list[int] = field(default_factory=list)
    keys: tuple[BlockKey, ...] = ()
    block_table: list[int] = field(default_factory=list)
    computed: int = 0
    ahead: int = 0
    """Tokens that a device is at work on and the host has not seen."""
    placed: int = 0
    forgotten: int = 0
    prefix_hits: int = 0
    preemptions: int = 0
    scheduled_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float | None = None

    def __post_init__(self) -> None:
        self.numbers = self.sampling.numbers()

    @property
    def length(self) -> int:
        """Tokens so far, prompt and generated, those on their way counted in."""
        return len(self.prompt) + len(self.generated) + self.ahead

    @property
    def newest(self) -> int:
        """The last token that is known."""
        return self.generated[-1] if self.generated else self.prompt[-1]

    @property
    def ending(self) -> bool:
        """Whether all its tokens are there or on their way."""
        return self.stopped or len(self.generated) + self.ahead >= self.max_new_tokens

    @property
    def prefilled(self) -> bool:
        """Whether only the newest token still lacks its KV, so that one decode step yields the next."""
        return self.computed >= self.length - 1 and bool(self.generated)

    @property
    def finished(self) -> bool:
        return self.stopped or len(self.generated) >= self.max_new_tokens

    def accept(self, token: int, now_s: float) -> None:
        """Append a generated token; the listener hears it last, when the request is otherwise up to date."""
        self.generated.append(token)
        self.first_token_s = self.first_token_s or now_s
        self.last_token_s = now_s
        self.stopped = token in self.sampling.stop_ids
        if self.listener is not None and self.listener(self, token):
            self.stopped = True

    def tokens(self, start: int, end: int) -> list[int]:
        """Tokens [start, end) of prompt and generated text together."""
        split = len(self.prompt)
        return list(self.prompt[start:end]) + self.generated[max(0, start - split) : max(0, end - split)]
