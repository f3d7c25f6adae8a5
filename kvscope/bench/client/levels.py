"""A load run's levels: what each sends and when (so many clients, or so many arrivals a second), and what came back.

The same settings give the same requests, byte for byte."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from kvscope.bench.client.server import Ask, Outcome, Server
from kvscope.bench.workload import lengths
from kvscope.bench.workload.lengths import Band
from kvscope.bench.workload.prompts import make_asks, make_talks
from kvscope.bench.workload.trace import Seen
from kvscope.errors import UsageError
from kvscope.signals.batches import quantile

Tell = Callable[[int], None]
LAG_EVERY_S = 0.05


async def closed(server: Server, asks: Sequence[Ask], clients: int, tell: Tell) -> list[Outcome]:
    """Send every request, ``clients`` outstanding at any time; outcomes in the order of the requests."""
    found: dict[int, Outcome] = {}
    waiting = iter(enumerate(asks))

    async def client() -> None:
        for index, ask in waiting:
            found[index] = await server.complete(ask)
            tell(len(found))

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
    return [found[index] for index in range(len(asks))]


async def opened(server: Server, asks: Sequence[Ask], arrivals_s: Sequence[float], tell: Tell) -> list[Outcome]:
    """Send each request at its time after the start, however many are outstanding."""
    began, done = perf_counter(), 0

    async def one(ask: Ask, due_s: float) -> Outcome:
        nonlocal done
        await asyncio.sleep(max(0.0, due_s - perf_counter()))
        outcome = await server.complete(ask, due_s)
        done += 1
        tell(done)
        return outcome

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(ask, began + at)) for ask, at in zip(asks, arrivals_s, strict=True)]
    return [task.result() for task in tasks]


async def sessions(server: Server, talks: Sequence[Sequence[Ask]], clients: int, tell: Tell) -> list[Outcome]:
    """Closed loop over conversations: a client holds one to its last turn, then takes the next."""
    found: dict[tuple[int, int], Outcome] = {}
    waiting = iter(enumerate(talks))

    async def client() -> None:
        for index, talk in waiting:
            for turn, ask in enumerate(talk):
                found[turn, index] = await server.complete(ask)
                tell(len(found))

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
    return [found[turn, index] for index, talk in enumerate(talks) for turn in range(len(talk))]


def poisson(rate: float, count: int, seed: int) -> list[float]:
    """Return ``count`` arrival times with exponential gaps, ``rate`` a second on average."""
    source, now, times = random.Random(seed), 0.0, []
    for _ in range(count):
        now += source.expovariate(rate)
        times.append(now)
    return times


async def watch_lag(lags_s: list[float]) -> None:
    """Note how late this client wakes up; run beside the load until cancelled."""
    while True:
        before = perf_counter()
        await asyncio.sleep(LAG_EVERY_S)
        lags_s.append(max(0.0, perf_counter() - before - LAG_EVERY_S))


MARGIN_TOKENS = 16
"""Room a server may want for its own tokens around a prompt."""


@dataclass(frozen=True, slots=True)
class Level:
    """So many clients (``closed``), so many arrivals a second (``open``), or a trace at so many times its speed."""

    kind: str
    value: float

    @property
    def key(self) -> str:
        """The prefix of this level's quantities."""
        return {"closed": "c", "open": "r", "trace": "t"}[self.kind] + f"{self.value:g}"

    @property
    def label(self) -> str:
        unit = {"closed": "clients", "open": "requests/s", "trace": "× trace"}[self.kind]
        return "1 client" if unit == "clients" and self.value == 1 else f"{self.value:g} {unit}"


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """``requests`` are measured at every level, ``warmup`` before them are sent and discarded (None: by level)."""

    levels: tuple[Level, ...]
    bands: tuple[Band, ...]
    tokens_out: tuple[int, int]
    requests: int | None = None
    warmup: int | None = None
    seed: int = 0
    repeat: int = 1
    turns: int = 1
    turn_tokens: int = 64
    shared: int = 0
    trace: tuple[Seen, ...] = ()

    def warm(self, level: Level) -> int:
        """Requests discarded at the start of a level: as many as run at once, at least two."""
        if self.warmup is not None:
            return self.warmup
        return max(2, round(level.value)) if level.kind == "closed" else max(4, round(2 * level.value))

    def measured(self, level: Level) -> int:
        """Requests measured at a level: four for every client, at least twenty."""
        if level.kind == "trace":
            return max(1, len(self.trace) - self.warm(level))
        return self.requests or max(20, round(4 * level.value) if level.kind == "closed" else 20)

    def pairs(self, level: Level) -> list[tuple[int, int]]:
        """Tokens in and out of every request of a level, the discarded ones first."""
        if self.trace:
            return [(one.tokens_in, max(1, one.tokens_out)) for one in self.trace]
        measured = lengths.draw(self.bands, self.measured(level), self.seed)
        warm = lengths.draw(self.bands, self.warm(level), self.seed + 1)
        source = random.Random(self.seed + 2)
        return [(tokens, source.randint(*self.tokens_out)) for tokens in warm + measured]

    def arrivals(self, level: Level) -> list[float]:
        """Seconds after the start at which an open level sends each request."""
        if level.kind == "trace":
            return [(one.arrival_s or 0.0) / level.value for one in self.trace]
        return poisson(level.value, self.warm(level) + self.measured(level), self.seed + 3)

    def as_json(self) -> dict[str, Any]:
        """Return what must be equal for two runs to have sent the same."""
        return {
            "levels": [level.label for level in self.levels],
            "mix": [f"{band.share:g}:{band.low}-{band.high}" for band in self.bands],
            "tokens_out": list(self.tokens_out),
            "requests": self.requests,
            "warmup": self.warmup,
            "seed": self.seed,
            "repeat": self.repeat,
            "turns": self.turns,
            "turn_tokens": self.turn_tokens,
            "shared_prefix": self.shared,
            "trace_requests": len(self.trace),
        }


def levels_of(clients: str | None, rates: str | None, trace_speed: float | None) -> tuple[Level, ...]:
    """Read ``1,4,16`` clients and ``0.5,2`` arrivals a second; UsageError."""
    if trace_speed is not None:
        if trace_speed <= 0:
            raise UsageError(f"--speed {trace_speed:g}: expected more than 0")
        return (Level("trace", trace_speed),)
    found = [Level("closed", float(value)) for value in _numbers(clients, "--clients", whole=True)]
    return tuple(found + [Level("open", value) for value in _numbers(rates, "--rate", whole=False)])


def range_of(text: str, option: str) -> tuple[int, int]:
    """Read ``64`` or ``16-128``; UsageError."""
    match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", text)
    low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 0 < low <= high:
        raise UsageError(f"{option} {text!r}: expected a number of tokens or LOW-HIGH")
    return low, high


def fitting(bands: Sequence[Band], longest: int | None, server: int | None, tokens_out: int) -> tuple[Band, ...]:
    """Shrink a mix to what a server takes, or to what was asked for; UsageError when nothing is left."""
    limits = [
        limit for limit in (longest, server - tokens_out - MARGIN_TOKENS if server else None) if limit is not None
    ]
    if not limits:
        return tuple(bands)
    if min(limits) < 16:
        raise UsageError(f"a prompt may have {min(limits)} tokens, expected at least 16: fewer --output-tokens?")
    return lengths.scaled(bands, min(limits))


def _numbers(text: str | None, option: str, *, whole: bool) -> list[float]:
    if not text:
        return []
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or any(value <= 0 or (whole and value != int(value)) for value in found):
        kind = "whole numbers" if whole else "numbers"
        raise UsageError(f"{option} {text!r}: expected {kind} above 0, with commas between them")
    return found


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
    watch = asyncio.create_task(watch_lag(lags))
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
        return await opened(server, asks, plan.arrivals(level), tell)
    if plan.turns > 1:
        talks = make_talks(asks, plan.turns, plan.turn_tokens, plan.seed)
        return await sessions(server, talks, int(level.value), tell)
    return await closed(server, asks, int(level.value), tell)


async def words_per_token(server: Server, seed: int) -> float:
    """Ask once with text of known words, and see how many tokens the server counts. ValueError when it does not say."""
    ask = make_asks([(CALIBRATION_WORDS, 1)], seed, 1.0, 0)[0]
    outcome = await server.complete(ask)
    if not outcome.tokens_in:
        raise ValueError(outcome.error or "the server's stream carries no usage")
    return CALIBRATION_WORDS / outcome.tokens_in
