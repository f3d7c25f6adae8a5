"""Live probes of quality: a full cache agrees with itself, and what compression does to a request is noticed."""

from __future__ import annotations

import pytest

from engine.llm import Engine
from engine.quality import COUNTED, Quality
from tests.unit.engine import tiny

PROMPT = tuple(3 + index * 7 % 90 for index in range(150))


def watched(requests: int = 2, **knobs: str) -> tuple[Engine, Quality]:
    engine = tiny.engine(margin_every="1", shadow_every="2", **knobs)
    engine.judge = quality = Quality(engine)
    for number in range(requests):
        engine.submit(PROMPT[number:], 12)
    # What follows a finished request carries the second run on.
    for _ in range(2):
        while engine.has_work:
            engine.step()
        engine.submit(PROMPT[40:60], 6)
    while engine.has_work:
        engine.step()
    return engine, quality


class Written(dict[str, float]):
    def set(self, name: str, value: float) -> None:
        self[name] = value


def test_a_full_cache_agrees_with_itself() -> None:
    _, quality = watched()
    done = quality.shadowed
    assert done.requests >= 1
    assert done.agreed == done.tokens >= 11
    assert done.kl < 1e-6
    assert done.margin == pytest.approx(done.full_margin, rel=1e-3)


def test_a_cache_that_dropped_most_of_it_does_not() -> None:
    _, quality = watched(policy="window", kept_share="0.1", importance="blind")
    assert quality.shadowed.kl > 1e-5


def test_margins_are_looked_at_as_often_as_asked() -> None:
    engine, quality = watched()
    assert quality.margin_tokens == engine.tokens_generated
    assert quality.margin_sum > 0


def test_nothing_is_followed_where_nobody_asks_for_it() -> None:
    engine = tiny.engine(margin_every="0", shadow_every="0")
    engine.judge = quality = Quality(engine)
    engine.submit(PROMPT, 8)
    while engine.has_work:
        engine.step()
    assert quality.margin_tokens == quality.shadowed.tokens == 0


def test_every_counter_is_written() -> None:
    _, quality = watched()
    written = Written()
    quality.put(written)  # type: ignore[arg-type]
    assert tuple(written) == tuple(COUNTED)
    assert written["quality.shadow_tokens"] == quality.shadowed.tokens
