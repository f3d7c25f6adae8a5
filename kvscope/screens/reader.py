"""Reads signals for a screen: over now, over the baseline, one beside the other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from kvscope import signals
from kvscope.finding import Diagnosis
from kvscope.screens.charts import Charts
from kvscope.signals import significance
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.replicas import OneReplica
from kvscope.slo import Slo
from kvscope.store import Segment, Store
from kvscope.view import Headline, Table

if TYPE_CHECKING:
    from kvscope.playbook_schema import Playbook

MEASURING = "measuring"
"""Why a number is missing that will be there in a moment."""
NOW_S = 10.0
"""Length of "now", seconds."""
MATTERS = 0.02
MATTERS_POINTS = 0.005
"""Changes below these are not worth a colour even when they are measured well."""


class Settings(Protocol):
    """The built-in engine's settings as tables; ``kvscope.session.lab.Lab`` is one."""

    def knobs(self) -> Table: ...

    def faults(self) -> Table: ...


class _OneReplica(OneReplica):
    """``OneReplica`` with what a screen needs beside series: the stream's span, its segments, a memory of its own."""

    def __init__(self, store: Store, replica: str) -> None:
        super().__init__(store, replica)
        self._answers: dict[object, object] = {}
        self._newest = 0.0

    @property
    def span(self) -> tuple[float, float] | None:
        return self._whole.span

    @property
    def segments(self) -> tuple[Segment, ...]:
        return self._whole.segments

    def memo(self, segment: Segment | None = None) -> dict[object, object]:
        """Answers until the next sample."""
        newest = self.span[1] if self.span else 0.0
        if newest != self._newest:
            self._newest = newest
            self._answers.clear()
        return self._answers


class Reader:
    """Computes signals over now and over the baseline; a baseline that is over is computed once.

    ``only``: one replica of a fleet, read as if it were alone.
    """

    def __init__(
        self,
        store: Store,
        playbooks: Sequence[Playbook] = (),
        lab: Settings | None = None,
        only: str = "",
        slo: Slo | None = None,
    ) -> None:
        self.store = _OneReplica(store, only) if only else store
        self.playbooks, self.lab, self.slo = playbooks, lab, slo
        self.charts = Charts()
        self.current: Segment | None = None
        self.baseline: Segment | None = None
        self.diagnosis: Diagnosis | None = None
        self.whole = False
        """Nothing more comes: numbers are of all of the segment, as the findings are, and not of its last seconds."""
        self.about = ""
        """What of the screen is opened."""
        self.end_s = 0.0
        """The moment that is read at: just past the newest sample, unless somebody went back in time."""
        self.points: dict[tuple[str, float], float | None] = {}
        """Readings of judged signals at points whose time is over."""
        self._remembered: dict[str, Reading | Missing] = {}

    def at(
        self,
        current: Segment | None,
        baseline: Segment | None,
        diagnosis: Diagnosis | None = None,
        overlay: bool = False,
        whole: bool = False,
    ) -> None:
        """Choose the two segments that are read from here on, and whether the curves of one lie under the other's."""
        if _edges(baseline) != _edges(self.baseline):
            self._remembered.clear()
        self.current, self.baseline, self.diagnosis, self.whole = current, baseline, diagnosis, whole
        self.end_s = current.end_s if current else 0.0
        self.charts.lay_under(*((baseline, current) if overlay else (None, None)))

    def now(self, name: str, slow: bool = False) -> Reading | Missing:
        """A signal over the last seconds of the current segment; a slow one over as much of it as it needs."""
        segment = self.current
        found: Reading | Missing = Missing("no sample yet", "")
        if segment is None:
            return found
        for length in (math.inf,) if self.whole else (NOW_S, 6 * NOW_S, math.inf) if slow else (NOW_S,):
            start = max(segment.start_s, segment.end_s - length)
            found = signals.compute(name, self.store, Segment(segment.name, start, segment.end_s, segment.tags))
            if isinstance(found, Reading) or start == segment.start_s:
                break
        if isinstance(found, Missing) and segment.end_s - segment.start_s < 3.0 and self.baseline is not None:
            return Missing(MEASURING, "") if isinstance(self.was(name), Reading) else found
        return found

    def was(self, name: str) -> Reading | Missing:
        """A signal over the baseline segment."""
        if self.baseline is None:
            return Missing("no baseline", "press b")
        if not signals.known(name):
            return Missing("no such signal")
        if name not in self._remembered:
            self._remembered[name] = signals.compute(name, self.store, self.baseline)
        return self._remembered[name]

    def fact(self, name: str, slow: bool = False) -> Headline:
        """A signal beside its baseline: relative change, or points for shares, and whether it exceeds the noise."""
        signal, now, was = signals.find(name), self.now(name, slow), self.was(name) if self.baseline else None
        better = {"up": 1, "down": -1, "": 0}[signal.better]
        if not isinstance(now, Reading) or not isinstance(was, Reading):
            return Headline(name, signal.label, now, was, None, better)
        found = significance.change(now, was)
        matters = abs(found.size) >= (MATTERS_POINTS if found.points else MATTERS)
        size = found.size if found.known else None
        return Headline(name, signal.label, now, was, size, better, found.points, found.sure and matters)

    def cells(self, label: str, heading: str, columns: Mapping[str, str], none: Missing) -> Table:
        """One row a layer, rank or GPU over the last seconds, one column a signal (heading → name)."""
        heads = ((heading, ""), *((name, signals.find(signal).unit) for name, signal in columns.items()))
        segment = self.current
        if segment is None:
            return Table(heads, none)
        recent = replace(segment, start_s=max(segment.start_s, segment.end_s - NOW_S))
        found = [signals.cells(signal, self.store, recent, label) for signal in columns.values()]
        names = sorted({name for one in found for name in one}, key=lambda name: (len(name), name))
        if not names:
            return Table(heads, none)
        rows = tuple((name, *(_value(one.get(name)) for one in found)) for name in names)
        return Table(heads, rows)

    def latest(self, metric: str) -> float | None:
        """The newest value of an unlabelled metric at the moment on screen."""
        return self.store.latest(metric, (), self.end_s)


def _value(found: Reading | Missing | None) -> float | None:
    return found.value if isinstance(found, Reading) else None


def _edges(segment: Segment | None) -> tuple[str, float, float] | None:
    return (segment.name, segment.start_s, segment.end_s) if segment else None
