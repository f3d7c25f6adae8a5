"""One tick of watching: poll the source, remember, read the signals, diagnose now and then, freeze a view."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kvscope import session_pages, session_view
from kvscope.errors import NotEnoughData, UsageError
from kvscope.finding import Diagnosis
from kvscope.session_evidence import Judged
from kvscope.session_lab import Controller, Lab
from kvscope.session_moment import Moment
from kvscope.session_replica import Alone
from kvscope.session_segments import SHORTEST_BASELINE_S, Comparison
from kvscope.session_source import Patient
from kvscope.session_trends import Charts
from kvscope.session_trial import Running, Trials
from kvscope.sources._base import Mark, Poll, Source
from kvscope.store import Store
from kvscope.view import Span, View

if TYPE_CHECKING:
    from kvscope.playbook_schema import Playbook
    from kvscope.recording import Recorder

DIAGNOSE_EVERY_S = 5.0
_PART_OF_A_CORE = 0.01
"""Share of time that diagnoses may take: an expensive one comes less often."""
_LONG_AGO_S = 86_400.0
"""Samples older than this are a recording's, and not a sign of silence."""
_KNOBS = ("policy", "kernels", "cap", "offered_load")


class Session:
    """Watches one source. Not thread-safe: one thread polls and gives the orders.

    ``time`` is the moment on screen, ``lab`` turns the built-in engine's knobs.
    """

    def __init__(
        self,
        source: Source,
        playbooks: Sequence[Playbook],
        *,
        clock: Callable[[], float] = time.time,
        controller: Controller | None = None,
        store: Store | None = None,
    ) -> None:
        self.source, self.playbooks, self.controller = Patient(source), playbooks, controller
        self.store = store or Store()
        self._clock = clock
        self._comparison = Comparison(self.store, clock)
        self._trials = Trials(self.store)
        self._reader = session_view.Reader(self.store)
        self._charts = Charts()
        self._judged = Judged(self.store, self.playbooks)
        self.time = Moment(self.store)
        self.lab = Lab(controller)
        self._diagnosis: Diagnosis | None = None
        self._next_diagnosis = 0.0
        self._recorder: Recorder | None = None
        self._notices: deque[str] = deque(maxlen=20)
        self._view: View | None = None
        self._screen, self._only = session_pages.OVERVIEW, ""
        self._closed = False

    def poll(self) -> View:
        """Take in what is new and return the view of this moment; while paused, the view stands still."""
        was_running, first = not self.source.ended, self._view is None
        while self._take(self.source.poll()):
            pass
        if was_running and self.source.ended:
            self._next_diagnosis = 0.0
        self._try()
        # The first view of something alive does not wait for the playbooks to be read and asked.
        if self.store.segments and self._clock() >= self._next_diagnosis and not (first and not self.source.ended):
            self.diagnose_now()
        if self.time.at_s is not None and self._view is not None and not self.time.moved:
            self._view = replace(self._view, recording=_path_of(self._recorder), ended=self.source.ended)
        else:
            self.time.moved = False
            self._view = self._build()
        return self._view

    def mark(self, name: str | None = None, tags: dict[str, str] | None = None) -> str:
        """Make what was seen so far the baseline and start a new segment; returns what was done, in words.

        Where the current segment has only just begun, the one before it becomes the baseline and nothing is cut.
        """
        current, earlier = self._comparison.current, self._comparison.earlier
        if current is None:
            return "Nothing to compare with yet: no sample so far"
        length = current.end_s - current.start_s
        self._next_diagnosis = 0.0
        if length < SHORTEST_BASELINE_S and name is None:
            if earlier is None:
                return f"Only {length:.0f} s so far: a baseline needs {SHORTEST_BASELINE_S:.0f} s"
            self._comparison.chosen = earlier.name
            return f"Baseline: {earlier.name}. {current.name} began {length:.0f} s ago and goes on"
        fresh = self._comparison.unique(name or "after")
        self._cut(Mark(fresh, self._comparison.now_s(), {**current.tags, **(tags or {})}))
        self._comparison.chosen = current.name
        self._trials.judged.clear()
        return f"Baseline: {current.name}, {length:.0f} s. From now on: {fresh}"

    def next_baseline(self) -> str:
        """Compare with the segment before the present baseline, going round."""
        self._next_diagnosis = 0.0
        name = self._comparison.turn()
        return f"Baseline: {name}" if name else "There is only one segment: nothing else to compare with"

    def look(self, screen: str) -> str:
        """Compute the numbers of that screen from the next view on, and no others.

        ``NAME/WHAT`` opens something of it; ``replica/NAME`` is the overview of one replica of a fleet.
        """
        only = screen.removeprefix("replica/") if screen.startswith("replica/") else ""
        if only != self._only:
            self._only, self._charts = only, Charts()
            self._reader = session_view.Reader(Alone(self.store, only) if only else self.store)
        self._screen = screen
        self.time.moved = True
        return ""

    def diagnose_now(self) -> Diagnosis:
        """Ask every playbook; the result is part of the next view."""
        from kvscope.diagnose import diagnose

        began = time.perf_counter()
        self._comparison.until_s = None
        current, baseline = self._comparison.current, self._comparison.baseline
        names = (baseline.name if baseline else None, current.name if current else None)
        try:
            found = diagnose(self.store, self.playbooks, self.source.describe(), *names)
        except NotEnoughData:
            found = Diagnosis({}, (), ())
        self._diagnosis = self._trials.merged(found)
        cost = time.perf_counter() - began
        self._comparison.until_s = self.time.at_s
        self._next_diagnosis = self._clock() + max(DIAGNOSE_EVERY_S, cost / _PART_OF_A_CORE)
        return self._diagnosis

    def apply(self, finding_id: str, name: str = "after") -> str:
        """Change what the finding's experiment sets, start segment ``name``, and let later polls judge the prediction.

        UsageError when nothing can be set from here; errors of the engine pass through.
        """
        findings = self._diagnosis.findings if self._diagnosis else ()
        finding = next((one for one in findings if one.id == finding_id), None)
        if finding is None or finding.experiment is None or not finding.experiment.set:
            raise UsageError(f"{finding_id}: no experiment that sets a knob")
        current = self._comparison.current
        if self.controller is None or current is None:
            raise UsageError(f"only the built-in engine can be changed from here; {finding.experiment.change}")
        self.time.seek(None)
        self._comparison.until_s = None
        sets = dict(finding.experiment.set)
        told = ", ".join(f"{knob} = {value}" for knob, value in sets.items())
        running = Running(finding, told, current.name, self._comparison.now_s(), self._comparison.unique(name))
        self.controller.set(sets, running.name)
        self._trials.start(running)
        return f"Set {told}; the prediction is checked as soon as there is enough to judge"

    def toggle_recording(self, path: Path | None = None) -> str:
        """Start writing everything into ``path`` (by default named by the time, here), or stop."""
        if self._recorder is not None:
            done, self._recorder = self._recorder, None
            done.close()
            return f"Recorded to {done.path}"
        from kvscope.recording import Recorder

        path = path or Path(time.strftime("kvscope-%Y%m%d-%H%M%S.db", time.localtime(self._clock())))
        self._recorder = Recorder(path, source=self.source.describe())
        current = self._comparison.current
        if current is not None:
            self._recorder.mark(Mark(current.name, self._comparison.now_s(), current.tags))
        return f"Recording to {path}"

    def close(self) -> None:
        """Finish the recording and let go of the source; a second time does nothing."""
        if self._closed:
            return
        self._closed = True
        if self._recorder is not None:
            self.toggle_recording()
        self.source.source.close()

    def _take(self, found: Poll) -> bool:
        """Remember what came; whether more of the same past is to be had at once."""
        for mark in found.marks:
            self._cut(mark)
        if found.samples:
            self.store.add(found.samples)
            if self._recorder is not None:
                self._recorder.add(found.samples)
        self._notices.extend(notice for notice in found.notices if notice not in self._notices)
        return found.more

    def _cut(self, mark: Mark) -> None:
        self.store.mark(mark)
        if self._recorder is not None:
            self._recorder.mark(mark)
        if self._trials.seen(mark) and self._trials.running is not None:
            self._comparison.chosen = self._trials.running.before
        self._next_diagnosis = min(self._next_diagnosis, self._clock() + DIAGNOSE_EVERY_S)

    def _try(self) -> None:
        """Bring the experiment under way one tick further."""
        overdue = self._trials.overdue(self._comparison.now_s())
        if overdue is not None:
            self._cut(overdue)
        judged = self._trials.judge(self.playbooks)
        if judged is not None:
            self._notices.append(f"{judged.title}: {judged.verdict}")
            self.diagnose_now()

    def _build(self) -> View:
        about, span, now = self.source.describe(), self.store.span, self._clock()
        self._comparison.until_s = self.time.at_s
        current, baseline = self._comparison.current, self._comparison.baseline
        newest = (span[1] if self.time.at_s is None else self.time.at_s) if span else 0.0
        self._reader.at(current, baseline)
        first = baseline.start_s if baseline else span[0] if span else 0.0
        window_s = self.time.window(newest - first)
        self._charts.lay_under(*((baseline, current) if self.time.overlay else (None, None)))
        tags = {**about.tags, **(current.tags if current else {})}
        alive, ended = about.alive and not self.source.failing, self.source.ended
        paused = self.time.at_s is not None
        return replace(
            self._own(session_pages.numbers(self._screen, self._reader, self._charts, window_s)),
            target=about.target,
            kind=about.kind,
            now_s=newest or now,
            alive=alive,
            recording=_path_of(self._recorder),
            status=self.source.status(span is not None),
            tags=tags,
            segments=tuple(
                Span(one.name, one.start_s, one.end_s, one == baseline, one == current)
                for one in self._comparison.segments
            ),
            diagnosis=self._diagnosis,
            notices=tuple(self._notices)[-5:],
            can_apply=self.controller is not None and alive and not ended,
            knobs={name: tags[name] for name in _KNOBS if name in tags},
            ended=ended,
            stale_s=max(now - newest, 0.0) if span and not ended | paused and now - newest < _LONG_AGO_S else 0.0,
            paused=paused,
            past=paused and span is not None and newest < span[1],
            overlay=self.time.overlay,
            only=self._only,
            trial=self._trials.shown(),
            playbooks=len(self.playbooks) if self._diagnosis else 0,
        )

    def _own(self, view: View) -> View:
        """Add what only the session knows of the open screen: the opened finding's charts, the engine's settings."""
        page = view.page
        if page is None or page.name not in ("diagnosis", "lab"):
            return view
        if page.name == "lab":
            return replace(view, page=replace(page, table=self.lab.knobs(), beside=self.lab.faults()))
        findings = self._diagnosis.findings if self._diagnosis else ()
        chosen = next((one for one in findings if one.id == page.about), findings[0] if findings else None)
        if chosen is None:
            return view
        charts = self._judged.charts(chosen, self._charts.window)
        return replace(view, page=replace(page, about=chosen.id, charts=charts))


def _path_of(recorder: Recorder | None) -> str:
    return str(recorder.path) if recorder is not None else ""
