"""Prompts of an exact length whose content is drawn, not written: every seed gives the same ones again."""

from __future__ import annotations

import random
from collections.abc import Sequence

from kvscope.bench.client.server import Ask

TOKENS = range(100, 1000)
"""Token numbers that every vocabulary in use has, above the special ones."""
_TEXT = (
    "time year people way day man thing woman life child world school state family student group country problem hand "
    "part place case week company system program question work government number night point home water room mother"
)
WORDS = tuple(_TEXT.split())


def make_asks(lengths: Sequence[tuple[int, int]], seed: int, words_per_token: float | None, shared: int) -> list[Ask]:
    """Return requests of (tokens in, tokens out); the first ``shared`` tokens are the same in all of them.

    ``words_per_token`` None writes token numbers, which makes lengths exact; else text of that many words a token.
    """
    source = random.Random(seed)
    common = _content(random.Random(seed ^ 0x5EED), shared, words_per_token)
    return [
        Ask(_joined(common, tokens_in, source, words_per_token), tokens_in, tokens_out)
        for tokens_in, tokens_out in lengths
    ]


def make_talks(asks: Sequence[Ask], turns: int, turn_tokens: int, seed: int) -> list[list[Ask]]:
    """Return conversations that begin with ``asks``: each turn repeats all before it and adds ``turn_tokens``.

    The model's answer is stood in for by drawn tokens of its length, so what a prefix cache can find again is what
    was sent before, not what was answered.
    """
    source = random.Random(seed ^ 0x7A1C)
    talks = []
    for ask in asks:
        talk = [ask]
        for _ in range(turns - 1):
            last = talk[-1]
            assert not isinstance(last.prompt, str)
            more = source.choices(TOKENS, k=last.tokens_out + turn_tokens)
            talk.append(Ask([*last.prompt, *more], last.tokens_in + len(more), last.tokens_out))
        talks.append(talk)
    return talks


def _joined(
    common: Sequence[int] | Sequence[str], tokens: int, source: random.Random, words_per_token: float | None
) -> list[int] | str:
    if words_per_token is None:
        kept = [int(token) for token in common][:tokens]
        return kept + source.choices(TOKENS, k=tokens - len(kept))
    words = max(1, round(tokens * words_per_token))
    start = [str(word) for word in common][:words]
    return " ".join(start + source.choices(WORDS, k=words - len(start)))


def _content(source: random.Random, tokens: int, words_per_token: float | None) -> list[int] | list[str]:
    if words_per_token is None:
        return source.choices(TOKENS, k=tokens)
    return source.choices(WORDS, k=round(tokens * words_per_token))
