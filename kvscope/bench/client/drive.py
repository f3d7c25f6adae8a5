"""Two ways to put load on a server: so many clients at any time, or so many arrivals a second whatever it does.

Closed loop: each client sends its next request when its last one ended. A slow server is asked less: it hides queueing.
Open loop: requests come when they come (Poisson, or as a trace says). What is behind falls further behind: it shows it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from time import perf_counter

from kvscope.bench.client.server import Ask, Outcome, Server

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
