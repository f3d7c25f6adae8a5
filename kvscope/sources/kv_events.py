"""KV cache events of an engine: which blocks come, go and come again. Hashes only: token ids are never kept.

Formats: vLLM 0.32.0 ``distributed/kv_events.py`` (msgpack arrays ``[tag, …]`` over ZMQ, sequence numbers beside), which
SGLang 0.5.23 and Dynamo 1.6.1 speak too; TensorRT-LLM 1.3 ``/kv_cache_events`` (JSON, ``data.type``). Recorded as JSON
lines (``{ts, seq, events}``) or as raw payloads, each after its length in four bytes. Live: ``events+tcp://host:port``.

A block that is stored again had been evicted before its reuse: that tells lost prefixes from new prompts.
"""

from __future__ import annotations

import importlib
import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kvscope.errors import SourceError
from kvscope.sources._lines import JsonLines
from kvscope.sources.source import Description, Poll, Source
from probes import border
from probes.sample import Sample, labels_of

SCHEME = "events+"
_MOST_BLOCKS = 4_000_000
_MOST_EVENTS = 100_000
_TIERS = {"GPU": "device", "CPU": "host", "CPU_PINNED": "host", "DISK": "disk", "EXTERNAL": "remote"}
_EXTRA = "reading msgpack needs one package more: pip install 'kvscope[events]'"
ALONE = "events alone: shares are of the tokens that were computed; a page beside (--with) tells hits too"


def looks_events(start: bytes) -> bool:
    """Whether a text starts as recorded events do."""
    line = start.lstrip().split(b"\n", 1)[0]
    return line.startswith(b"{") and b'"events"' in line and (b"Block" in line or b'"event_id"' in line)


@dataclass(slots=True)
class Residency:
    """What the events say so far: which blocks lie where, which came again, and how far apart."""

    block_tokens: int = 0
    stored: float = 0.0
    lost: float = 0.0
    evicted: float = 0.0
    gaps: int = 0
    dropped: bool = False
    _resident: dict[str, set[int]] = field(default_factory=dict)
    _seen: dict[int, int] = field(default_factory=dict)
    _again: set[int] = field(default_factory=set)
    _clock: int = 0
    distances: list[int] = field(default_factory=list)
    """Blocks stored since a lost block was stored last: a pool that holds as many more would have kept it."""
    _last_seq: int | None = None

    def number(self, seq: int | None) -> None:
        """Take a batch's sequence number; one that is missing is a gap."""
        if seq is not None:
            if self._last_seq is not None and seq > self._last_seq + 1:
                self.gaps += seq - self._last_seq - 1
            self._last_seq = seq

    def store(self, hashes: Sequence[Any], block_tokens: int, tier: str) -> None:
        """Take blocks that were stored; on the device a hash seen before had been lost."""
        self.block_tokens = max(self.block_tokens, block_tokens)
        lie = self._resident.setdefault(tier, set())
        for one in hashes:
            block = _hash(one)
            if tier == "device" and block not in lie:
                self.stored += block_tokens
                before = self._seen.get(block)
                if before is not None:
                    self.lost += block_tokens
                    self._again.add(block)
                    if len(self.distances) < _MOST_BLOCKS:
                        self.distances.append(self._clock - before)
                self._clock += 1
                if len(self._seen) < _MOST_BLOCKS:
                    self._seen[block] = self._clock
                else:
                    self.dropped = True
            if len(lie) < _MOST_BLOCKS:
                lie.add(block)

    def remove(self, hashes: Sequence[Any], tier: str) -> None:
        """Take blocks that were evicted."""
        lie = self._resident.setdefault(tier, set())
        for one in hashes:
            if _hash(one) in lie:
                lie.discard(_hash(one))
                if tier == "device":
                    self.evicted += self.block_tokens

    def clear(self) -> None:
        """Take that all blocks were dropped."""
        for lie in self._resident.values():
            lie.clear()

    def samples(self, t: float, *, alone: bool) -> Iterator[Sample]:
        """Yield how it stands; ``alone``: no page tells what was looked up."""
        yield Sample("prefix.stored", self.stored, t)
        yield Sample("prefix.lost", self.lost, t)
        yield Sample("cache.evicted_tokens", self.evicted, t)
        yield Sample("prefix.working_set_tokens", float(len(self._again) * self.block_tokens), t)
        if self.block_tokens:
            yield Sample("kv.block_size", float(self.block_tokens), t)
        for tier, lie in self._resident.items():
            yield Sample("prefix.cached_tokens", float(len(lie) * self.block_tokens), t, labels_of(tier=tier))
        if alone:
            yield Sample("prefix.queries", self.stored, t)
            yield Sample("prefix.reusable", self.lost, t)

    def enough_for(self, share: float) -> float | None:
        """Return the tokens a cache must keep for this share of the lost blocks to be found; None where none was."""
        if not self.distances:
            return None
        ordered = sorted(self.distances)
        return float(ordered[min(len(ordered) - 1, int(share * len(ordered)))] * self.block_tokens)


def _hash(one: Any) -> int:
    return one if isinstance(one, int) else hash(str(one)[:200])


def take(residency: Residency, events: Iterable[Any]) -> None:
    """Take the events of one batch, arrays or objects; what is no event is left out."""
    for index, event in enumerate(events):
        if index >= _MOST_EVENTS:
            return
        if isinstance(event, list | tuple) and event:
            event = _named(event)
        if not isinstance(event, Mapping):
            continue
        kind = str(event.get("type", ""))
        hashes = event.get("block_hashes")
        tier = _TIERS.get(str(event.get("medium") or "GPU"), "device")
        if kind in ("BlockStored", "stored"):
            blocks = event.get("blocks")
            found = hashes if isinstance(hashes, list) else _block_hashes(blocks)
            size = event.get("block_size")
            per_block = size if isinstance(size, int) and 0 < size < 1 << 20 else _tokens_of(blocks)
            residency.store(found, per_block, tier)
        elif kind in ("BlockRemoved", "removed") and isinstance(hashes, list):
            residency.remove(hashes, tier)
        elif kind in ("AllBlocksCleared", "cleared"):
            residency.clear()


_FIELDS = {
    "BlockStored": ("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium"),
    "BlockRemoved": ("block_hashes", "medium"),
    "AllBlocksCleared": (),
}


def _named(event: Sequence[Any]) -> dict[str, Any]:
    """Name an array's fields by its tag; token ids are dropped here."""
    kind = event[0].decode(errors="replace") if isinstance(event[0], bytes) else str(event[0])
    found = dict(zip(_FIELDS.get(kind, ()), event[1:], strict=False))
    found.pop("token_ids", None)
    medium = found.get("medium")
    return {**found, "type": kind, "medium": medium.decode(errors="replace") if isinstance(medium, bytes) else medium}


def _block_hashes(blocks: Any) -> list[Any]:
    rows = blocks[:_MOST_EVENTS] if isinstance(blocks, list) else []
    return [one.get("block_hash") for one in rows if isinstance(one, dict) and one.get("block_hash") is not None]


def _tokens_of(blocks: Any) -> int:
    first = blocks[0] if isinstance(blocks, list) and blocks and isinstance(blocks[0], dict) else {}
    tokens = first.get("tokens")
    return len(tokens) if isinstance(tokens, list) else 0


class EventsSource:
    """Recorded events as a target. SourceError when there is not one batch in the file."""

    def __init__(self, path: Path, *, alone: bool = True) -> None:
        self._path, self._alone = path, alone
        self._residency = Residency()
        self._samples = list(self._read())
        if not self._samples:
            raise SourceError(f"{path}: no KV events in it; expected lines {{ts, seq, events}} or raw payloads")

    def describe(self) -> Description:
        return Description("events", str(self._path), "", "", {}, note="KV events: hashes only")

    def poll(self) -> Poll:
        samples, self._samples = self._samples, []
        return Poll(
            samples, notices=tuple(notices_of(self._residency, alone=self._alone)) if samples else (), ended=True
        )

    def close(self) -> None:
        """Nothing is held open."""

    def _read(self) -> Iterator[Sample]:
        last = -1.0
        for t, seq, events in _batches(self._path):
            self._residency.number(seq)
            take(self._residency, events)
            last = max(last, t)
            yield from self._residency.samples(last, alone=self._alone)


def _batches(path: Path) -> Iterator[tuple[float, int | None, list[Any]]]:
    with path.open("rb") as file:
        first = file.read(4)
    if first[:1] == b"{" or first[:2] == b"\x1f\x8b":
        for _, line in JsonLines(path):
            events = line.get("events") or ([line["data"]] if isinstance(line.get("data"), dict) else None)
            t, seq = line.get("ts", line.get("recv_t", 0.0)), line.get("seq", line.get("event_id"))
            if isinstance(events, list) and isinstance(t, int | float) and border.finite(t):
                yield float(t), seq if isinstance(seq, int) else None, events
        return
    data = border.read_file(path, 1 << 30)
    at = 0
    while at + 4 <= len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        payload, at = data[at + 4 : at + 4 + size], at + 4 + size
        batch = unpacked(payload)
        if batch is not None:
            yield batch[0], None, batch[1]


def unpacked(payload: bytes) -> tuple[float, list[Any]] | None:
    """Return time and events of a msgpack payload; None when it is none. SourceError without the package."""
    try:
        import msgpack
    except ImportError as error:
        raise SourceError(_EXTRA) from error
    try:
        found = msgpack.unpackb(payload, raw=False, strict_map_key=False)
    except (ValueError, msgpack.exceptions.UnpackException, TypeError, RecursionError, MemoryError):
        return None
    if not isinstance(found, list) or len(found) < 2 or not isinstance(found[1], list):
        return None
    t = found[0]
    return (float(t), found[1]) if isinstance(t, int | float) and border.finite(t) else None


def notices_of(residency: Residency, *, alone: bool) -> Iterator[str]:
    """Say what the events tell beyond figures: how large a pool would do, what is missing."""
    if alone:
        yield ALONE
    need = residency.enough_for(0.8)
    if need is not None:
        yield (
            f"of the tokens stored again, 80 % would have been found by a cache that keeps {need:.0f} tokens, "
            "the longest unused going first"
        )
    if residency.gaps:
        yield f"{residency.gaps} batches of events are missing between sequence numbers: residents are a lower bound"
    if residency.dropped:
        yield f"more than {_MOST_BLOCKS} distinct blocks: what came later is not told apart"


class WithEvents:
    """A page's target with the events of the same run: what had been computed before is hits plus what was lost."""

    def __init__(self, target: Source, events: EventsSource) -> None:
        self._target, self._events = target, events
        self._times: list[float] = []
        self._lost: list[float] = []

    def describe(self) -> Description:
        about = self._target.describe()
        return replace(about, note=f"{about.note}; with KV events" if about.note else "with KV events")

    def poll(self) -> Poll:
        page, events = self._target.poll(), self._events.poll()
        for one in events.samples:
            if one.metric == "prefix.lost":
                self._times.append(one.t)
                self._lost.append(one.value)
        known = {one.metric for one in page.samples}
        added = [one for one in events.samples if one.metric not in known]
        hits: dict[float, float] = {}
        for one in page.samples:
            if one.metric == "prefix.hits":
                hits[one.t] = hits.get(one.t, 0.0) + one.value
        added += [Sample("prefix.reusable", value + self._lost_by(t), t) for t, value in hits.items()]
        samples = sorted([*page.samples, *added], key=lambda sample: sample.t)
        return Poll(samples, page.marks, (*page.notices, *events.notices), page.ended, page.more)

    def close(self) -> None:
        self._target.close()
        self._events.close()

    def _lost_by(self, t: float) -> float:
        index = bisect_right(self._times, t)
        return self._lost[index - 1] if index else 0.0


class LiveEvents:
    """Events of a running engine over ZMQ: ``events+tcp://host:port`` (``?topic=kv``)."""

    def __init__(self, address: str) -> None:
        try:
            zmq: Any = importlib.import_module("zmq")
        except ImportError as error:
            raise SourceError("hearing KV events needs one package more: pip install 'kvscope[events]'") from error
        self._address, _, query = address.removeprefix(SCHEME).partition("?")
        topic = query.removeprefix("topic=") if query.startswith("topic=") else ""
        self._again = zmq.Again
        self._socket: Any = zmq.Context.instance().socket(zmq.SUB)
        try:
            self._socket.setsockopt(zmq.RCVHWM, 10_000)
            self._socket.setsockopt(zmq.LINGER, 0)
            self._socket.setsockopt(zmq.MAXMSGSIZE, 64 << 20)
            self._socket.setsockopt_string(zmq.SUBSCRIBE, topic)
            self._socket.connect(self._address)
        except zmq.ZMQError as error:
            self._socket.close()
            raise SourceError(f"{address}: {error}; expected events+tcp://host:port") from error
        self._no_wait = zmq.NOBLOCK
        self._residency = Residency()
        self._told = False

    def describe(self) -> Description:
        return Description("events", self._address, "", "", {}, note="KV events: hashes only")

    def poll(self) -> Poll:
        last = None
        for _ in range(10_000):
            try:
                frames = self._socket.recv_multipart(self._no_wait)
            except self._again:
                break
            batch = unpacked(frames[-1])
            if batch is None:
                continue
            seq = frames[1] if len(frames) == 3 and len(frames[1]) == 8 else None
            self._residency.number(int.from_bytes(seq, "big") if seq is not None else None)
            take(self._residency, batch[1])
            last = batch[0]
        if last is None:
            return Poll([])
        notices = () if self._told else (ALONE,)
        self._told = True
        return Poll(list(self._residency.samples(last, alone=True)), notices=notices)

    def close(self) -> None:
        self._socket.close()
