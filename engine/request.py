"""One generation task, from arrival to its last token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from engine.prefix import BlockKey

Check = Callable[[int, int], bool]
"""(previous token, generated token) → whether it is right."""


@dataclass(eq=False)
class Request:
    """A prompt, what was generated for it so far, and the blocks that hold its KV. Times are monotonic seconds.

    ``computed`` counts the tokens whose KV is stored; a request decodes once it reaches all tokens but the last.
    ``placed`` counts leading blocks whose form the policy has decided.
    """

    id: int
    prompt: tuple[int, ...]
    max_new_tokens: int
    arrival_s: float
    check: Check | None = None
    generated: list[int] = field(default_factory=list)
    keys: tuple[BlockKey, ...] = ()
    block_table: list[int] = field(default_factory=list)
    computed: int = 0
    placed: int = 0
    prefix_hits: int = 0
    preemptions: int = 0
    scheduled_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float | None = None

    @property
    def length(self) -> int:
        """Tokens so far, prompt and generated."""
        return len(self.prompt) + len(self.generated)

    @property
    def prefilled(self) -> bool:
        """Whether only the newest token still lacks its KV, so that one decode step yields the next."""
        return self.computed >= self.length - 1 and bool(self.generated)

    @property
    def finished(self) -> bool:
        return len(self.generated) >= self.max_new_tokens

    def tokens(self, start: int, end: int) -> list[int]:
        """Tokens [start, end) of prompt and generated text together."""
        split = len(self.prompt)
        return list(self.prompt[start:end]) + self.generated[max(0, start - split) : max(0, end - split)]
