"""What is known besides a target: its machine, a log of the same engine, settings that a person or a file gave.

The target's own word counts where both say a metric; a person's word counts before every other.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import replace

from kvscope.sources.logs.source import LACKING
from kvscope.sources.settings import Settings
from kvscope.sources.source import Description, Mark, Poll, Source
from probes.sample import Labels, Sample


class MergedSource:
    """Polls every source and gives their samples in time order; it is described by, and ends with, the first."""

    def __init__(self, first: Source, others: Sequence[Source] = ()) -> None:
        self._sources = (first, *others)

    def describe(self) -> Description:
        return self._sources[0].describe()

    def poll(self) -> Poll:
        # The engine last: what came about its machine meanwhile must not be newer than what is read next.
        polls = [source.poll() for source in reversed(self._sources)][::-1]
        return Poll(
            list(heapq.merge(*(poll.samples for poll in polls), key=lambda sample: sample.t)),
            tuple(sorted((mark for poll in polls for mark in poll.marks), key=lambda mark: mark.t)),
            tuple(notice for poll in polls for notice in poll.notices),
            polls[0].ended,
            polls[0].more,
        )

    def close(self) -> None:
        for source in self._sources:
            source.close()


_SETTINGS = ("config.", "events.")
_EARLIER_S = 60.0


class WithLog:
    """A target and the log of the same run as one: the log adds what the target does not tell."""

    def __init__(self, target: Source, log: Source) -> None:
        self._target, self._log = target, log
        self._told: set[str] = set()
        self._begins: float | None = None

    def describe(self) -> Description:
        about, beside = self._target.describe(), self._log.describe()
        note = f"{about.note}; with {beside.target}" if about.note else f"with {beside.target}"
        tags = {**beside.tags, **about.tags}
        # A page tells its version by its names, as a bracket; the log says it.
        if beside.version:
            tags["version"] = beside.version
        return replace(about, version=tags.get("version", ""), tags=tags, note=note)

    def poll(self) -> Poll:
        first = self._target.poll()
        second = self._log.poll()
        self._told.update(sample.metric for sample in first.samples)
        if self._begins is None and first.samples:
            self._begins = first.samples[0].t
        added = self._added(second.samples)
        samples = sorted([*first.samples, *added], key=lambda sample: sample.t)
        notices = [notice for notice in second.notices if LACKING not in notice]
        return Poll(samples, first.marks, (*first.notices, *notices), first.ended, first.more)

    def close(self) -> None:
        self._target.close()
        self._log.close()

    def _added(self, samples: Iterable[Sample]) -> list[Sample]:
        """Return what only the log says; of what it said long before, settings and counts as they stood."""
        begins = self._begins
        found: list[Sample] = []
        standing: dict[tuple[str, Labels], Sample] = {}
        for sample in samples:
            if sample.metric in self._told and not sample.metric.startswith(_SETTINGS):
                continue
            if begins is None or sample.t >= begins - _EARLIER_S:
                found.append(sample)
            elif sample.metric.startswith(_SETTINGS):
                standing[sample.metric, sample.labels] = sample._replace(t=begins)
        return [*standing.values(), *found]


class Joined:
    """Saved artefacts of one run as one: the first is the target, and each adds what those before it do not tell.

    What does not say its times is laid over the stretch of the first that does: its order is right.
    """

    def __init__(self, parts: Sequence[Source]) -> None:
        self._parts = parts
        self._given = False

    def describe(self) -> Description:
        abouts = [part.describe() for part in self._parts]
        names = ", ".join(about.target for about in abouts[1:])
        first = abouts[0]
        tags = {name: text for about in reversed(abouts) for name, text in about.tags.items()}
        note = f"{first.note}; with {names}" if first.note else f"with {names}"
        return replace(first, tags=tags, note=note, dated=any(about.dated for about in abouts))

    def poll(self) -> Poll:
        if self._given:
            return Poll([], ended=True)
        self._given = True
        polls = [_whole(part) for part in self._parts]
        dated = [part.describe().dated for part in self._parts]
        frame = next((_span(poll) for poll, sure in zip(polls, dated, strict=True) if sure and poll.samples), None)
        told: set[str] = set()
        found: list[Sample] = []
        notices: dict[str, None] = {}
        for poll, sure in zip(polls, dated, strict=True):
            samples = poll.samples if sure or frame is None else _laid_over(poll.samples, frame)
            found += [one for one in samples if one.metric not in told or one.metric.startswith(_SETTINGS)]
            told.update(one.metric for one in samples)
            notices.update(dict.fromkeys(line for line in poll.notices if LACKING not in line))
        found.sort(key=lambda one: one.t)
        return Poll(found, polls[0].marks, tuple(notices), ended=True)

    def close(self) -> None:
        for part in self._parts:
            part.close()


def _whole(source: Source) -> Poll:
    """Return all that a saved source gives."""
    samples: list[Sample] = []
    marks: list[Mark] = []
    notices: list[str] = []
    while True:
        poll = source.poll()
        samples += poll.samples
        marks += poll.marks
        notices += poll.notices
        if poll.ended or not (poll.samples or poll.more):
            return Poll(samples, tuple(marks), tuple(notices), ended=True)


def _span(poll: Poll) -> tuple[float, float]:
    times = [one.t for one in poll.samples]
    return min(times), max(times)


def _laid_over(samples: Sequence[Sample], frame: tuple[float, float]) -> list[Sample]:
    if not samples:
        return []
    begins, ends = min(one.t for one in samples), max(one.t for one in samples)
    if ends <= begins:
        return [one._replace(t=frame[1]) for one in samples]
    scale = (frame[1] - frame[0]) / (ends - begins)
    return [one._replace(t=frame[0] + (one.t - begins) * scale) for one in samples]


class Told:
    """A target of which a person (or a model's config.json) said something: it stands from the first sample on."""

    def __init__(self, target: Source, settings: Settings) -> None:
        self._target, self._settings = target, settings
        self._surer = {metric for metric, source in settings.sources().items() if source == "person"}
        self._fresh = True

    def describe(self) -> Description:
        about = self._target.describe()
        return replace(about, tags={**about.tags, **self._settings.tags()})

    def poll(self) -> Poll:
        poll = self._target.poll()
        samples = [one for one in poll.samples if one.metric not in self._surer]
        if self._fresh and poll.samples:
            self._fresh = False
            told = list(self._settings.samples(poll.samples[0].t, again=True))
            have = {one.metric for one in samples} - {"config.said"}
            samples = [*(one for one in told if one.metric not in have), *samples]
        return replace(poll, samples=samples)

    def close(self) -> None:
        self._target.close()


def beside(target: Source, logs: Sequence[Source] = (), settings: Settings | None = None) -> Source:
    """Return a target with everything that is known besides it."""
    for log in logs:
        target = WithLog(target, log)
    return Told(target, settings) if settings is not None and settings.values() else target
