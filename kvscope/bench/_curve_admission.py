"""The same long-tail load under three admissions at equal memory: how many run at once, and who is thrown out again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kvscope.bench._matrix_run import only
from kvscope.bench.client import drive
from kvscope.bench.client.outcome import Outcome
from kvscope.bench.client.server import Ask, Server
from kvscope.diagnose import diagnose
from kvscope.errors import NotEnoughData
from kvscope.playbook import load_all
from kvscope.sources._base import Source
from kvscope.store import Segment, Store

Tell = Callable[[int], None]
_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Admitted:
    """``running``: requests at once, mean over the steps in which others waited; ``preempted`` share of requests."""

    name: str
    running: float
    most: float
    preempted: float
    failed: int
    tokens_per_s: float
    margin: float = 0.0
    named: str = ""
    """The causes a diagnosis of the same run names first: id of the playbook and verdict of each."""


def admit(
    name: str,
    knobs: Mapping[str, str],
    set_knobs: Callable[[Mapping[str, str]], object],
    server: Server,
    source: Source,
    asks: Sequence[Ask],
    clients: int,
    tell: Tell,
) -> Admitted:
    """Run ``asks`` under ``knobs``. NotEnoughData when the queue was never longer than what ran."""
    set_knobs(knobs)
    source.poll()
    store = Store(1 << 16)
    outcomes = asyncio.run(_load(server, source, store, asks, clients, tell))
    store.add(source.poll().samples)
    times, waiting = store.series("sched.waiting")
    _, running = store.series("sched.running")
    busy = [now for now, queue in zip(running, waiting, strict=False) if queue >= 1]
    if not busy:
        raise NotEnoughData(f"{name}: nobody ever waited; expected more clients than fit")
    _, preemptions = store.series("sched.preemptions")
    answered = [one for one in outcomes if one.ok]
    if not answered:
        raise NotEnoughData(f"{name}: every request failed: {outcomes[0].error}")
    wall = max(one.ended_s for one in answered) - min(one.sent_s for one in outcomes)
    return Admitted(
        name,
        sum(busy) / len(busy),
        max(running),
        (preemptions[-1] - preemptions[0]) / len(asks) if preemptions else 0.0,
        len(outcomes) - len(answered),
        sum(one.tokens_out for one in answered) / wall,
        float(knobs.get("curve_margin", 0.0)),
        _named(only(store, [_busy(times, waiting)]), source),
    )


def _busy(times: Sequence[float], waiting: Sequence[float]) -> Segment:
    """The stretch in which requests waited: before and after it the pool fills and empties."""
    queued = [t for t, queue in zip(times, waiting, strict=True) if queue >= 1]
    return Segment("busy", queued[0], queued[-1], {})


def _named(store: Store, source: Source) -> str:
    """Diagnose the run as a user would who only sees it from outside."""
    found = diagnose(store, load_all(), source.describe()).findings
    shown = [f"{one.id} ({one.verdict})" for one in found if one.verdict in ("likely", "possible")]
    return ", ".join(shown[:_SHOWN])


async def _load(
    server: Server, source: Source, store: Store, asks: Sequence[Ask], clients: int, tell: Tell
) -> Sequence[Outcome]:
    async def read() -> None:
        while True:
            await asyncio.sleep(0.2)
            store.add(source.poll().samples)

    reading = asyncio.create_task(read())
    try:
        return await drive.closed(server, asks, clients, tell)
    finally:
        reading.cancel()
