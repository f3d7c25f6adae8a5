"""Watching for findings: one target, judged again and again over its last minute; what began and what ended.

A rule answers yes, no or unknown, from intervals. A finding begins when it was as strong as asked for ``hold_s``
without a break, and ends when its symptom was clearly gone for ``clear_s`` without a break; whatever lies between
changes nothing, so that noise around a bound is one alert. One that comes back soon must stay away twice as long to
end again.
"""

from __future__ import annotations

import os
import re
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kvscope.account import NO_FACTS, Facts
from kvscope.coverage import clearly_gone
from kvscope.diagnose import diagnose
from kvscope.errors import NotEnoughData, SourceError, UsageError
from kvscope.finding import Diagnosis, Finding, Verdict, fails
from kvscope.recording import Recorder
from kvscope.report.json import finding_as_json
from kvscope.signals.significance import Answer
from kvscope.slo import Slo
from kvscope.sources.clock import STEADY, silence
from kvscope.sources.source import Mark, Poll
from kvscope.state import complete
from kvscope.store import Store
from kvscope.watch import fill, fill_pair
from probes.catalog import metric_of
from probes.sample import Sample

if TYPE_CHECKING:
    from kvscope.playbook_schema import Playbook
    from kvscope.sources.source import Source
    from probes.sample import Labels

DOWN = "target-down"
"""What a target that does not answer is called among the findings."""
AGAIN_S = 15.0
"""How often one that does not answer is tried again."""
LONGEST_CLEAR_S = 3600.0
RETURNS = 10.0
"""Back within so many times the time it had to stay away: it flaps."""
MOST_SAMPLES = 2_000_000
MOST_SERIES = 100_000
MOST_FILES = 50
_CLEAR: tuple[Verdict, ...] = ("silent", "unexplained", "refuted")


@dataclass(frozen=True, slots=True)
class Rhythm:
    """How a target is watched: seconds each. ``on`` is the verdict that counts; ``before_s`` is what is recorded."""

    on: Verdict = "likely"
    every_s: float = 10.0
    window_s: float = 60.0
    hold_s: float = 30.0
    clear_s: float = 120.0
    before_s: float = 300.0

    def __post_init__(self) -> None:
        for name, least in (("every_s", 1.0), ("window_s", 10.0), ("hold_s", 0.0), ("clear_s", 0.0), ("before_s", 0.0)):
            if not least <= getattr(self, name) <= 86_400.0:
                raise UsageError(f"{name.removesuffix('_s')} is {getattr(self, name)}, expected {least:g} to 86400 s")


@dataclass(frozen=True, slots=True)
class Event:
    """A finding of a target began, ended, or (while it lasts) changed its verdict. Times are epoch seconds."""

    event: Literal["began", "ended", "changed"]
    t_s: float
    target: str
    id: str
    title: str
    verdict: str
    says: str
    began_s: float
    finding: Finding | None = None
    recording: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the event as scripts read it; ``finding`` as `diagnose --format json` has it."""
        names = ("event", "t_s", "target", "id", "title", "verdict", "says", "began_s", "recording")
        told = {"schema": 1, **{name: getattr(self, name) for name in names}}
        return told | {"finding": finding_as_json(self.finding) if self.finding else {}}


@dataclass(slots=True)
class _State:
    active: bool = False
    turning_s: float | None = None
    """Since when the answer is the one that would change it."""
    began_s: float = 0.0
    ended_s: float = -inf
    factor: float = 1.0


class Hysteresis:
    """Whether something holds, from answers over time; it turns only on answers that lasted."""

    def __init__(self, hold_s: float, clear_s: float) -> None:
        self._hold_s, self._clear_s = hold_s, clear_s
        self._states: dict[str, _State] = {}

    def active(self) -> Mapping[str, float]:
        """What holds now, and since when."""
        return {name: one.began_s for name, one in self._states.items() if one.active}

    def began_s(self, name: str) -> float:
        """When it last began."""
        return self._states[name].began_s

    def turns(self, name: str, t: float, answer: Answer) -> bool:
        """Take an answer of time ``t``; whether that made it begin or end."""
        one = self._states.setdefault(name, _State())
        if answer != ("no" if one.active else "yes"):
            one.turning_s = None
            return False
        since = one.turning_s if one.turning_s is not None else t
        one.turning_s = since
        if t - since < (self._clear_s * one.factor if one.active else self._hold_s):
            return False
        one.active, one.turning_s = not one.active, None
        if not one.active:
            one.ended_s = t
            return True
        soon = since - one.ended_s < RETURNS * self._clear_s
        longest = max(1.0, LONGEST_CLEAR_S / max(self._clear_s, 1.0))
        one.factor = min(2 * one.factor, longest) if soon else 1.0
        one.began_s = since
        return True


class Recent:
    """The samples of the last minutes, and what every counter and setting said last before them."""

    def __init__(self, keep_s: float) -> None:
        self._keep_s = keep_s
        self._parts: deque[tuple[float, list[Sample]]] = deque()
        self._held: OrderedDict[tuple[str, Labels], Sample] = OrderedDict()
        self._count = 0

    def add(self, samples: list[Sample]) -> None:
        """Take the samples of one poll; what is older than is kept goes, bounded in number too."""
        if not samples:
            return
        newest = samples[-1].t
        self._parts.append((newest, samples))
        self._count += len(samples)
        while len(self._parts) > 1 and (self._parts[0][0] < newest - self._keep_s or self._count > MOST_SAMPLES):
            _, old = self._parts.popleft()
            self._count -= len(old)
            self._hold(old)

    def since(self, start_s: float) -> list[Sample]:
        """Return all from ``start_s`` on. Counters and settings said before stand at its beginning: they still hold."""
        held, found = dict(self._held), list[Sample]()
        for newest, samples in self._parts:
            if newest < start_s:
                held.update(_holding(samples))
                continue
            for one in samples:
                if one.t >= start_s:
                    found.append(one)
                elif _holds(one.metric):
                    held[one.metric, one.labels] = one
        if not found:
            return []
        begins = found[0].t
        return [one._replace(t=begins - 0.001) for one in held.values()] + found

    def _hold(self, samples: Iterable[Sample]) -> None:
        for key, one in _holding(samples):
            self._held[key] = one
            self._held.move_to_end(key)
        while len(self._held) > MOST_SERIES:
            self._held.popitem(last=False)


def _holding(samples: Iterable[Sample]) -> Iterator[tuple[tuple[str, Labels], Sample]]:
    return (((one.metric, one.labels), one) for one in samples if _holds(one.metric))


def _holds(metric: str) -> bool:
    """Whether a value stands until another is said: a setting, a name, a counter; a gauge tells of its moment only."""
    if metric.startswith(("config.", "engine.")):
        return True
    known = metric_of(metric)
    return known is not None and known.kind in ("counter", "observation", "info")


@dataclass(slots=True)
class Watched:
    """One target under watch. ``poll`` is called about as often as the target is to be asked; one thread at a time."""

    target: str
    open: Callable[[], Source]
    playbooks: Sequence[Playbook]
    rhythm: Rhythm = field(default_factory=Rhythm)
    slo: Slo | None = None
    facts: Callable[[Source, Store], Facts] = lambda _source, _store: NO_FACTS
    baseline: tuple[Poll, dict[str, str]] | None = None
    folder: Path | None = None
    clock: Callable[[], float] = STEADY.now
    ended: bool = False
    """A target that is over (a recording) has said everything."""
    diagnosis: Diagnosis | None = None
    """The last one."""
    notices: deque[str] = field(default_factory=lambda: deque(maxlen=100))
    _source: Source | None = None
    _recent: Recent = field(init=False)
    _turning: Hysteresis = field(init=False)
    _down: Hysteresis = field(init=False)
    _rules: dict[str, Playbook] = field(init=False)
    _verdicts: dict[str, str] = field(default_factory=dict)
    _known: tuple[float, Facts] = (-inf, NO_FACTS)
    _cut_s: float = -inf
    _judged_s: float = -inf
    _again_s: float = -inf

    def __post_init__(self) -> None:
        self._recent = Recent(max(self.rhythm.before_s, self.rhythm.window_s))
        self._rules = {rule.id: rule for rule in self.playbooks}
        self._turning = Hysteresis(self.rhythm.hold_s, self.rhythm.clear_s)
        # That it answers again is no matter of noise.
        self._down = Hysteresis(self.rhythm.hold_s, 0.0)

    def poll(self) -> list[Event]:
        """Ask the target and judge it where it is time to; what turned."""
        now = self.clock()
        if self._source is None and now < self._again_s:
            return []
        poll, why = self._ask()
        self.notices.extend(poll.notices)
        if poll.marks:
            self._cut_s = max(mark.t for mark in poll.marks)
        events: list[Event] = []
        for step in _steps(poll.samples, self.rhythm.every_s):
            self._recent.add(step)
            if step[-1].t - self._judged_s >= 0.9 * self.rhythm.every_s:
                events += self._judge(step[-1].t)
        if poll.ended and not why:
            self.ended = True
            return events
        if poll.ended:
            # Its process is gone; another may take its place.
            self.close()
            self._again_s = now + AGAIN_S
        return events + self._heard(now, why)

    def close(self) -> None:
        """Let go of the target."""
        if self._source is not None:
            self._source.close()
            self._source = None

    def _ask(self) -> tuple[Poll, str]:
        """Return what came, and why nothing does; a target that cannot be opened is opened again later."""
        try:
            if self._source is None:
                self._source = self.open()
            poll = self._source.poll()
        except SourceError as error:
            self.close()
            self._again_s = self.clock() + AGAIN_S
            return Poll([]), str(error)
        return poll, poll.silent or silence(self._source.describe())

    def _heard(self, now: float, why: str) -> list[Event]:
        if not self._down.turns(DOWN, now, "yes" if why else "no"):
            return []
        active = DOWN in self._down.active()
        says = why if active else "it answers again"
        kind: Literal["began", "ended"] = "began" if active else "ended"
        verdict = "likely" if active else "silent"
        began = self._down.began_s(DOWN)
        return [Event(kind, now, self.target, DOWN, "the target does not answer", verdict, says, began)]

    def _judge(self, now: float) -> list[Event]:
        """Judge the last window; a target that does not answer is not judged, and nothing of it turns."""
        self._judged_s = now
        store = Store()
        try:
            self.diagnosis = found = self._diagnose(store, max(now - self.rhythm.window_s, self._cut_s))
        except NotEnoughData:
            return []
        judged = {finding.id: finding for finding in found.findings}
        events = []
        for name in [*judged, *(self._turning.active().keys() - judged.keys())]:
            finding = judged.get(name)
            if self._turning.turns(name, now, self._answer(finding)):
                events.append(self._turned(name, finding, now))
            elif finding is not None and name in self._turning.active() and self._stronger(finding):
                events.append(self._event("changed", finding, now, ""))
        return events

    def _diagnose(self, store: Store, start_s: float) -> Diagnosis:
        assert self._source is not None
        about, samples = self._source.describe(), self._recent.since(start_s)
        if not samples:
            raise NotEnoughData(self.target)
        pair: tuple[str | None, str | None] = (None, None)
        if self.baseline:
            fill_pair(store, self.baseline[0], Poll(samples), (self.baseline[1], about.tags))
            pair = ("baseline", "current")
        else:
            fill(store, Poll(samples))
        if samples[-1].t - self._known[0] >= 60.0:
            # What is known of a model or a device may come late, and does not change with every judgement.
            self._known = (samples[-1].t, self.facts(self._source, store))
        found = diagnose(store, self.playbooks, about, *pair, include_silent=True, facts=self._known[1])
        return complete(found, store, self.slo)

    def _answer(self, finding: Finding | None) -> Answer:
        """Yes: as strong as asked. No: clearly not there. Near a bound, in doubt, beneath another cause: unknown."""
        if finding is None:
            return "no"
        if fails(finding, self.rhythm.on):
            return "unknown" if finding.explained_by else "yes"
        rule = self._rules.get(finding.id)
        gone = finding.verdict in _CLEAR and (rule is None or clearly_gone(rule, finding))
        return "no" if gone else "unknown"

    def _turned(self, name: str, finding: Finding | None, now: float) -> Event:
        if name in self._turning.active():
            assert finding is not None
            self._verdicts[name] = finding.verdict
            return self._event("began", finding, now, self._record(name, now))
        self._verdicts.pop(name, None)
        if finding is not None:
            return self._event("ended", finding, now, "")
        return Event("ended", now, self.target, name, name, "silent", "no longer found", self._turning.began_s(name))

    def _stronger(self, finding: Finding) -> bool:
        """Whether a finding that is on has another verdict that counts than when it was last told."""
        if not fails(finding, self.rhythm.on) or self._verdicts.get(finding.id) == finding.verdict:
            return False
        self._verdicts[finding.id] = finding.verdict
        return True

    def _event(self, kind: Literal["began", "ended", "changed"], finding: Finding, now: float, recording: str) -> Event:
        numbers = [f"{one.signal} {one.value:.3g}" for one in finding.evidence if one.value is not None]
        says = f"{finding.cause} ({', '.join(dict.fromkeys(numbers))})" if numbers else finding.cause
        began = self._turning.began_s(finding.id)
        told = (self.target, finding.id, finding.title, finding.verdict, says, began, finding, recording)
        return Event(kind, now, *told)

    def _record(self, name: str, now: float) -> str:
        """Write the minutes before to a file of their own; returns its path. A full disk is told, and no more."""
        if self.folder is None or self._source is None:
            return ""
        samples = self._recent.since(now - self.rhythm.before_s)
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
        where = re.sub(r"[^A-Za-z0-9.]+", "-", self.target.rpartition("//")[2])[-60:].strip("-")
        path = self.folder / f"alert-{stamp}-{where}-{name}.db"
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            recorder = Recorder(path, self._source.describe())
            try:
                recorder.write(Poll(samples, (Mark(name, self._turning.began_s(name)),)))
            finally:
                recorder.close()
        except (SourceError, UsageError, OSError) as error:
            self.notices.append(f"the minutes before were not recorded: {error}")
            return ""
        for old in sorted(self.folder.glob("alert-*.db"), key=os.path.getmtime)[:-MOST_FILES]:
            with suppress(OSError):
                old.unlink()
        return str(path)


def _steps(samples: Sequence[Sample], every_s: float) -> Iterator[list[Sample]]:
    """Cut what came at once (a recording) into what would have come between two judgements."""
    for _, step in groupby(samples, key=lambda one: one.t // every_s):
        yield list(step)
