"""What the engine holds for a request while it decodes, and how many run at once under an admission."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from kvscope.bench._matrix_run import only
from kvscope.bench.client import levels
from kvscope.bench.client.server import Ask, Outcome, Server
from kvscope.bench.workload.prompts import make_asks
from kvscope.diagnose import diagnose
from kvscope.errors import NotEnoughData
from kvscope.playbook import load_all
from kvscope.sources.source import Source
from kvscope.store import Segment, Store

POLL_S = 0.02
TRIES = 3
RESIDENT, LAYER = "kv.resident_bytes", "kv.bytes_per_layer"
USAGE, CAPACITY = "kv.usage_ratio", "kv.capacity_tokens"
CACHED, EVICTED = "prefix.reusable", "cache.evictions"
SMALL_IN, SMALL_OUT = 2, 10
"""A request of one block that runs long enough for the engine to look at its pool."""


@dataclass(frozen=True, slots=True)
class Held:
    """What one request of ``tokens`` held: ``amount`` in ``unit`` (B, or tokens where no bytes are said) as it
    ended; ``peak`` at any time of it; bytes of each layer where they are said.
    """

    tokens: int
    amount: float
    peak: float
    unit: str
    by_layer: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Others:
    """Bytes that were resident while a request of one block ran, and the bytes of that block; blocks dropped so far."""

    amount: float
    by_layer: tuple[float, ...]
    block: float
    evicted: float | None

    def taken_off(self, held: Held) -> Held:
        """Return what is the request's own of what was resident."""
        kept = max(0.0, self.amount - self.block)
        layers = [max(0.0, size - self.block / len(self.by_layer)) for size in self.by_layer]
        own = tuple(size - kept for size, kept in zip(held.by_layer, layers, strict=False))
        return replace(held, amount=held.amount - kept, peak=held.peak - kept, by_layer=own)


class Meter:
    """Reads a source beside a server that nobody else uses."""

    def __init__(self, server: Server, source: Source) -> None:
        self._server, self._source = server, source
        self._store = Store(1 << 16)

    @property
    def capacity_tokens(self) -> float | None:
        """Tokens the server's pool can hold uncompressed, where it says so."""
        return self._store.latest(CAPACITY)

    def hold(self, tokens_in: int, tokens_out: int, seed: int) -> Held:
        """Send one request and return what it held; sent again when it was over before anything was read.

        NotEnoughData when it failed, or when it was read in none of ``TRIES``.
        """
        for again in range(TRIES):
            held = self._once(tokens_in, tokens_out, seed + again * 7919)
            if held is not None:
                return held
        raise NotEnoughData(
            f"no reading of {RESIDENT} or {USAGE} while a request of {tokens_in} tokens decoded; "
            "expected one: a source that says it, or a slower request"
        )

    def _once(self, tokens_in: int, tokens_out: int, seed: int) -> Held | None:
        before = self._of_others(seed + 1)
        held, evicted = self._request(tokens_in, tokens_out, seed), self._store.latest(EVICTED)
        if held is None or before is None:
            return held
        if evicted != before.evicted:
            raise NotEnoughData(
                f"blocks of ended requests were dropped while one of {tokens_in} tokens was measured: "
                "expected room for both; start the engine anew, with a larger pool or prefix_cache=off"
            )
        return before.taken_off(held)

    def _of_others(self, seed: int) -> Others | None:
        """Return what a prefix cache keeps of ended requests, where the engine counts that as resident, or None.

        A request of one block makes the engine look at its pool again; its block is not cached, and goes when it ends.
        """
        self._store.add(self._source.poll().samples)
        if self._store.latest(RESIDENT) is None or self._store.latest(CACHED) is None:
            return None
        small = self._request(SMALL_IN, SMALL_OUT, seed)
        block, room, pool = (self._store.latest(name) for name in ("kv.block_size", CAPACITY, "kv.reserved_bytes"))
        if small is None or not block or not room or not pool:
            return None
        return Others(small.amount, small.by_layer, block * pool / room, self._store.latest(EVICTED))

    def _request(self, tokens_in: int, tokens_out: int, seed: int) -> Held | None:
        ask = make_asks([(tokens_in, tokens_out)], seed, None, 0)[0]
        stop = threading.Event()
        reader = threading.Thread(target=self._read, args=(stop,), name="meter", daemon=True)
        reader.start()
        try:
            outcome = asyncio.run(self._server.complete(ask))
        finally:
            stop.set()
            reader.join()
        if not outcome.ok:
            raise NotEnoughData(f"a request of {tokens_in} tokens failed: {outcome.error}")
        wall = time.time() - perf_counter()
        # The last token's step may free the request already.
        span = (outcome.sent_s + wall, outcome.token_s[0] + wall, outcome.token_s[-1] + wall - 1e-3)
        return self._held(tokens_in + tokens_out, *span)

    def _read(self, stop: threading.Event) -> None:
        while not stop.wait(POLL_S):
            self._store.add(self._source.poll().samples)
        self._store.add(self._source.poll().samples)

    def _held(self, tokens: int, sent: float, first: float, last: float) -> Held | None:
        for metric, factor, unit in ((RESIDENT, 1.0, "B"), (USAGE, self._store.latest(CAPACITY) or 0.0, "tokens")):
            _, late = self._store.series(metric, (), (first + last) / 2, last)
            decoding = [value for value in late if value > 0]
            _, whole = self._store.series(metric, (), sent, last)
            high = max([*_after_old(whole, self._store.latest(metric, (), sent)), *decoding], default=0.0)
            if decoding and factor:
                layers = sorted(self._store.keys(LAYER), key=lambda labels: int(dict(labels).get("layer", 0)))
                each = (self._store.series(LAYER, labels, (first + last) / 2, last)[1] for labels in layers)
                by_layer = tuple(values[-1] for values in each if values)
                return Held(tokens, decoding[-1] * factor, high * factor, unit, by_layer)
        return None


def _after_old(values: Sequence[float], old: float | None) -> Sequence[float]:
    """Drop what was read before the engine looked at its pool again: it still tells of the request before."""
    index = next((index for index, value in enumerate(values) if value != old), len(values))
    return values[index:]


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
        return await levels.closed(server, asks, clients, tell)
    finally:
        reading.cancel()
