"""A fleet through its Prometheus: ``prom+http(s)://host:9090?match=…``, one range query a poll however many replicas.

Values are read on the grid of the scrape interval, as far back as ``last`` at the first poll: there is no need to wait
for a second scrape. A replica is an instance, or one engine core of an instance with several.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kvscope.errors import SourceError
from kvscope.sources import maps
from kvscope.sources._page import PageReader, Targets
from kvscope.sources._promapi import Address, Ask, Series, ask, parse_address, series_of
from kvscope.sources._prometheus import bounded
from kvscope.sources._reader import reader_of
from kvscope.sources._replicas import Labeller, describe
from kvscope.sources.fetch import TooLarge
from kvscope.sources.source import Description, Poll
from probes.border import Refused
from probes.sample import Sample

TIMEOUT_S = 10.0
DEFAULT_STEP_S = 15.0
_FEW_STEPS = 8
"""History of a fleet too large for more: enough for errors of means."""
_MOST_POINTS = 11_000
"""More steps in one range query Prometheus refuses."""
_MOST_SERIES = 40_000
"""A poll of more takes longer than the step it is about: a large fleet is read without buckets."""
_LOOK_AGAIN_S = 60.0
"""How often the names are asked for again: a labelled counter is absent until it counts something."""
_PLUMBING = ("__name__", "instance", "job")
_PARTS = ("_bucket", "_sum", "_count")


@dataclass(slots=True)
class _Replica:
    reader: PageReader
    label: Labeller
    heard_s: float = 0.0
    silent: bool = False


@dataclass(slots=True)
class _Member:
    """The series of one instance (or engine core) in an answer, before they mean anything."""

    names: set[str] = field(default_factory=set)
    series: list[Series] = field(default_factory=list)


class PrometheusSource:
    """Reads all replicas that ``match`` selects. SourceError at once when there is none."""

    def __init__(
        self,
        address: str | Address,
        *,
        timeout_s: float = TIMEOUT_S,
        wall: Callable[[], float] = time.time,
        call: Ask | None = None,
    ) -> None:
        self._address = parse_address(address) if isinstance(address, str) else address
        self._ask: Ask = call or ask(self._address, timeout_s)
        self._wall, self._timeout_s = wall, timeout_s
        self._notices: list[str] = []
        self._said: set[str] = set()
        self._step_s = self._address.step_s or self._scrape_interval()
        self._names: list[str] = []
        self._looked_s = -math.inf
        self._buckets = True
        self._replicas: dict[str, _Replica] = {}
        self._read_s = self._grid(wall()) - self._span(self._address.last_s)
        self._failing = ""
        self._samples = self._read()
        if not self._replicas:
            raise SourceError(
                f"{self._address.base}: no engine in the last {self._address.last_s:g} s"
                f"{f' where {self._address.match}' if self._address.match else ''}; expected {maps.expected()}"
            )

    def describe(self) -> Description:
        engines = {name: one for name, one in self._replicas.items() if one.reader.engine.ROLE != "machine"}
        tags = {name: one.reader.tags for name, one in engines.items()}
        answered = sum(not one.silent for one in engines.values())
        where = f"{self._address.base}{f' {{{self._address.match}}}' if self._address.match else ''}"
        return describe("prometheus", where, tags, 0 if self._failing else answered, len(engines))

    def poll(self) -> Poll:
        samples, self._samples = self._samples, []
        if not samples:
            try:
                samples = self._read()
                self._failing = ""
            except SourceError as error:
                if not self._failing:
                    self._notices.append(str(error))
                self._failing = str(error)
        notices, self._notices = tuple(self._notices), []
        return Poll(samples, notices=notices)

    def close(self) -> None:
        """Nothing is held open between polls."""

    def _read(self) -> list[Sample]:
        """Return what came since the last read: one range query, and now and again one for the names."""
        end = self._grid(self._wall())
        if end <= self._read_s:
            return []
        if self._wall() - self._looked_s >= _LOOK_AGAIN_S:
            self._look_for_names()
        # After a long silence only what one query may hold is asked for.
        start = max(self._read_s + self._step_s, end - self._span(self._address.last_s))
        began = time.monotonic()
        try:
            data = self._ask("query_range", self._range(start, end))
        except SourceError as error:
            slow = time.monotonic() - began >= self._timeout_s
            if not self._buckets or not (slow or isinstance(error, TooLarge)):
                raise
            self._leave_buckets("the answer is too large")
            start = max(start, end - self._step_s * _FEW_STEPS)
            data = self._ask("query_range", self._range(start, end))
        self._read_s = end
        found = list(series_of(data))
        if self._buckets and len(found) > _MOST_SERIES:
            self._leave_buckets(f"{len(found)} series are too many for each poll")
        return self._samples_of(found, start)

    def _leave_buckets(self, why: str) -> None:
        """From now on ask for no buckets, which are four of five series; means and counts stay."""
        self._buckets = False
        self._notices.append(f"{why}: histogram buckets are left out, so quantiles are unknown")

    def _range(self, start: float, end: float) -> dict[str, str]:
        wanted = [name for name in self._names if self._buckets or not name.endswith("_bucket")]
        names = "|".join(re.escape(name) for name in wanted)
        where = f",{self._address.match}" if self._address.match else ""
        query = f'{{__name__=~"{names}"{where}}}'
        return {"query": query, "start": repr(start), "end": repr(end), "step": repr(self._step_s)}

    def _samples_of(self, found: Iterable[Series], start: float) -> list[Sample]:
        rows: dict[float, dict[str, list[tuple[Targets, float]]]] = {}
        for name, member in _members(found).items():
            replica = self._replica(name, member)
            if replica is None:
                continue
            for labels, points in member.series:
                try:
                    targets = replica.reader.resolve(labels["__name__"], _meaning(labels))
                except Refused as error:
                    self._say_once(f"{name}: {error}: left out")
                    continue
                for t, value in points if targets else ():
                    rows.setdefault(t, {}).setdefault(name, []).append((targets or (), value))
        samples: list[Sample] = []
        for t in sorted(rows):
            for name, raw in rows[t].items():
                replica = self._replicas[name]
                result = replica.reader.read_rows(raw, t)
                replica.heard_s = t
                samples += replica.label(result.samples)
                self._notices += [f"{name}: {line}" for line in result.notices]
        self._watch_silence(max(rows, default=start))
        return samples

    def _say_once(self, notice: str) -> None:
        if notice not in self._said and len(self._said) < 100:
            self._said.add(notice)
            self._notices.append(notice)

    def _replica(self, name: str, member: _Member) -> _Replica | None:
        """Return who this is; an instance that is no engine (a node exporter, Prometheus itself) is nobody."""
        if name not in self._replicas:
            try:
                reader = reader_of(sorted(member.names), name, alone=False)
            except SourceError:
                return None
            self._replicas[name] = _Replica(reader, Labeller(name))
        return self._replicas[name]

    def _watch_silence(self, now: float) -> None:
        for name, replica in self._replicas.items():
            silent = now - replica.heard_s > 2 * self._step_s
            if silent != replica.silent:
                self._notices.append(f"{name}: {'no value any more' if silent else 'values again'}")
            replica.silent = silent

    def _look_for_names(self) -> None:
        """Ask which of the names that some map knows are there at all."""
        known = _known_names()
        found = self._ask("label/__name__/values")
        self._names = sorted(known.intersection(name for name in found or () if isinstance(name, str)))
        self._looked_s = self._wall()
        if not any(name for name in self._names if not name.startswith("process_")):
            raise SourceError(f"{self._address.base}: it holds no metric of an engine; expected {maps.expected()}")

    def _scrape_interval(self) -> float:
        """Return the longest scrape interval of its targets, where it tells; a fleet is read on its slowest beat."""
        try:
            found = [_duration(one) for one in self._ask("targets?state=active")["activeTargets"]]
            return max(1.0, max(seconds for seconds in found if seconds))
        except (SourceError, ValueError, KeyError, TypeError):
            self._notices.append(f"the scrape interval is not told: read every {DEFAULT_STEP_S:g} s (set step=…)")
            return DEFAULT_STEP_S

    def _grid(self, t: float) -> float:
        return math.floor(t / self._step_s) * self._step_s

    def _span(self, seconds: float) -> float:
        return min(seconds, (_MOST_POINTS - 1) * self._step_s)


def _members(found: Iterable[Series]) -> dict[str, _Member]:
    """Group series by replica: the instance, and its engine core where an instance has several."""
    cores: dict[str, dict[str, None]] = {}
    kept = []
    for labels, points in found:
        if "__name__" in labels and points:
            kept.append((labels, points))
            if "engine" in labels:
                cores.setdefault(_instance(labels), {})[labels["engine"]] = None
    members: dict[str, _Member] = {}
    for labels, points in kept:
        instance = _instance(labels)
        several = cores.get(instance, {})
        # What is said without a core (the process's start) is kept with the first.
        core = labels.get("engine", next(iter(several), ""))
        member = members.setdefault(f"{instance}#{core}" if len(several) > 1 else instance, _Member())
        member.names.add(labels["__name__"])
        member.series.append((labels, points))
    return members


def _instance(labels: Mapping[str, str]) -> str:
    return labels.get("instance") or labels.get("pod") or labels.get("job") or "?"


def _meaning(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return bounded(tuple(sorted((name, value) for name, value in labels.items() if name not in _PLUMBING)))


def _known_names() -> set[str]:
    found = set()
    for name in maps.names():
        for entry in maps.load(name).MAP:
            parts = _PARTS if entry.kind == "histogram" else ("",)
            found |= {entry.name + part for part in parts}
    return found


def _duration(target: Any) -> float:
    """Return a target's scrape interval in seconds; 0 where it is not told (``1m30s`` is Prometheus's spelling)."""
    text = target.get("scrapeInterval") if isinstance(target, dict) else None
    if not isinstance(text, str):
        return 0.0
    units = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3}
    return sum(float(number) * units[unit] for number, unit in re.findall(r"(\d+)(ms|h|m|s)", text))
