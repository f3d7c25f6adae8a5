"""Runs one level against a server and keeps what came back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kvscope.bench._load_plan import Level, LoadPlan
from kvscope.bench.client import drive
from kvscope.bench.client.outcome import Outcome
from kvscope.bench.client.server import Ask, Server
from kvscope.bench.workload.prompts import make_asks, make_talks
from kvscope.signals.batches import quantile

CALIBRATION_WORDS = 200


@dataclass(frozen=True, slots=True)
class LevelRun:
    """One pass over one level: the ``warm`` outcomes are discarded; ``lag_p99_s``: how late this client itself was."""

    level: Level
    repeat: int
    warm: tuple[Outcome, ...]
    outcomes: tuple[Outcome, ...]
    lag_p99_s: float

    def as_json(self) -> dict[str, Any]:
        return {
            "level": [self.level.kind, self.level.value],
            "repeat": self.repeat,
            "lag_p99_s": self.lag_p99_s,
            "warm": [one.as_json() for one in self.warm],
            "outcomes": [one.as_json() for one in self.outcomes],
        }

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> LevelRun:
        """Read one back; KeyError, TypeError or ValueError when it is none."""
        kind, value = found["level"]
        warm = tuple(Outcome.from_json(one) for one in found["warm"])
        outcomes = tuple(Outcome.from_json(one) for one in found["outcomes"])
        return cls(Level(str(kind), float(value)), int(found["repeat"]), warm, outcomes, float(found["lag_p99_s"]))


async def run_level(
    server: Server, plan: LoadPlan, level: Level, repeat: int, words: float | None, tell: Callable[[int], None]
) -> LevelRun:
    """Send a level's requests; the discarded ones run on into the measured ones without a pause."""
    asks = make_asks(plan.pairs(level), plan.seed + 4, words, plan.shared)
    lags: list[float] = []
    watch = asyncio.create_task(drive.watch_lag(lags))
    try:
        found = await _drive(server, plan, level, asks, tell)
    finally:
        watch.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watch
    warm = plan.warm(level) * (plan.turns if level.kind == "closed" else 1)
    warm = min(warm, len(found) - 1)
    return LevelRun(
        level, repeat, tuple(found[:warm]), tuple(found[warm:]), quantile(sorted(lags), 0.99) if lags else 0.0
    )


async def _drive(
    server: Server, plan: LoadPlan, level: Level, asks: list[Ask], tell: Callable[[int], None]
) -> list[Outcome]:
    if level.kind != "closed":
        return await drive.opened(server, asks, plan.arrivals(level), tell)
    if plan.turns > 1:
        talks = make_talks(asks, plan.turns, plan.turn_tokens, plan.seed)
        return await drive.sessions(server, talks, int(level.value), tell)
    return await drive.closed(server, asks, int(level.value), tell)


async def words_per_token(server: Server, seed: int) -> float:
    """Ask once with text of known words, and see how many tokens the server counts. ValueError when it does not say."""
    ask = make_asks([(CALIBRATION_WORDS, 1)], seed, 1.0, 0)[0]
    outcome = await server.complete(ask)
    if not outcome.tokens_in:
        raise ValueError(outcome.error or "the server's stream carries no usage")
    return CALIBRATION_WORDS / outcome.tokens_in
