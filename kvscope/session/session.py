"""One tick of watching: poll the source, remember, diagnose now and then, freeze a view of the open screen."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kvscope import order, screens
from kvscope.account import NO_FACTS, Facts
from kvscope.errors import NotEnoughData, SourceError, UsageError
from kvscope.finding import Diagnosis
from kvscope.order import Order
from kvscope.screens.reader import Reader
from kvscope.session.lab import Controller, Lab
from kvscope.session.moment import SHORTEST_BASELINE_S, Comparison, Moment
from kvscope.session.trial import Running, Trials
from kvscope.signals import replicas
from kvscope.slo import Slo
from kvscope.sources.clock import STEADY, silence
from kvscope.sources.source import Description, Mark, Poll, Source
from kvscope.state import complete, state_of
from kvscope.store import Store
from kvscope.view import Span, View

if TYPE_CHECKING:
    from kvscope.compare import Said
    from kvscope.playbook_schema import Playbook
    from kvscope.recording import Recorder

DIAGNOSE_EVERY_S = 5.0
FACTS_EVERY_S = 60.0
_MOST_OF_A_CORE, _PART_OF_A_CORE = 0.1, 0.01
"""Shares of time that diagnoses may take: an expensive one comes less often, but who has just come waits for one."""
_GROWN = 0.5
"""A verdict over all that was watched changes as that grows: while it is young it is judged anew after this part."""
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
        clock: Callable[[], float] = STEADY.now,
        controller: Controller | None = None,
        store: Store | None = None,
        slo: Slo | None = None,
        facts: Callable[[Store], Facts] | None = None,
        said: Said | None = None,
    ) -> None:
        self.source, self.playbooks, self.controller = source, playbooks, controller
        self.store = store or Store()
        self.time = Moment(self.store)
        self.lab = Lab(controller)
        self._clock, self._began_s = clock, clock()
        self._comparison = Comparison(self.store, clock)
        self._trials = Trials(self.store)
        self._slo, self._facts, self._said = slo, facts or (lambda _: NO_FACTS), said
        self._known, self._next_facts = NO_FACTS, 0.0
        self._reader = Reader(self.store, playbooks, self.lab, slo=slo)
        self._screen, self._only = screens.OVERVIEW, ""
        self._diagnosis: Diagnosis | None = None
        self._next_diagnosis = 0.0
        self._recorder: Recorder | None = None
        self._notices: deque[str] = deque(maxlen=20)
        self._view: View | None = None
        self._failing, self._ended, self._closed = "", False, False

    def poll(self) -> View:
        """Take in what is new and return the view of this moment; while paused, the view stands still."""
        was_running, first = not self._ended, self._view is None
        while self._take(self._ask()):
            pass
        if was_running and self._ended:
            self._next_diagnosis = 0.0
        self._try()
        # The first view of something alive does not wait for the playbooks to be read and asked.
        if self.store.segments and self._clock() >= self._next_diagnosis and not (first and not self._ended):
            self.diagnose_now()
        if self.time.at_s is not None and self._view is not None and not self.time.moved:
            self._view = replace(self._view, recording=_path_of(self._recorder), ended=self._ended)
        else:
            self.time.moved = False
            self._view = self._build()
        return self._view

    def do(self, asked: Order) -> str:
        """Obey; returns what was done, in words. UsageError when it cannot be; errors of the engine pass through."""
        match asked:
            case order.MarkBaseline(name):
                return self._mark(name)
            case order.NextBaseline():
                self._next_diagnosis = 0.0
                chosen = self._comparison.turn()
                return f"Baseline: {chosen}" if chosen else "There is only one segment: nothing else to compare with"
            case order.Diagnose():
                told = [f for f in self.diagnose_now().findings if f.verdict in ("confirmed", "likely", "possible")]
                return f"Diagnosed: {len(told)} finding{'s' if len(told) != 1 else ''}"
            case order.Apply(finding, name):
                return self._apply(finding, name)
            case order.Record(path):
                return self._toggle_recording(path)
            case order.Look(screen):
                return self._look(screen)
            case order.SetKnob(knob, value):
                return self.lab.change({knob: value})
            case order.ToggleFault(fault):
                return self.lab.toggle(fault)
            case order.ResetKnobs():
                return self.lab.reset()
            case _:
                return self.time.do(asked)

    def compare(self, baseline: str | None, current: str | None) -> None:
        """Show one named segment beside another, until somebody marks a new one."""
        self._comparison.chosen, self._comparison.shown = baseline or "", current or ""

    def diagnose_now(self) -> Diagnosis:
        """Ask every playbook; the result is part of the next view."""
        from kvscope.compare import NOTHING_SAID
        from kvscope.diagnose import diagnose

        began = time.perf_counter()
        self._comparison.until_s = None
        current, baseline = self._comparison.current, self._comparison.baseline
        names = (baseline.name if baseline else None, current.name if current else None)
        try:
            if self._clock() >= self._next_facts:
                # What is known of a model or a device may come late, and does not change every second.
                self._known, self._next_facts = self._facts(self.store), self._clock() + FACTS_EVERY_S
            about, said = self.source.describe(), self._said or NOTHING_SAID
            found = diagnose(self.store, self.playbooks, about, *names, facts=self._known, said=said)
            found = complete(found, self.store, self._slo)
        except NotEnoughData:
            found = Diagnosis({}, (), ())
        self._diagnosis = self._trials.merged(found)
        cost = time.perf_counter() - began
        self._comparison.until_s = self.time.at_s
        rest_s = min(cost / _PART_OF_A_CORE, _GROWN * (self._clock() - self._began_s))
        self._next_diagnosis = self._clock() + max(DIAGNOSE_EVERY_S, cost / _MOST_OF_A_CORE, rest_s)
        return self._diagnosis

    def close(self) -> None:
        """Finish the recording and let go of the source; a second time does nothing."""
        if self._closed:
            return
        self._closed = True
        if self._recorder is not None:
            self._toggle_recording(None)
        self.source.close()

    def _ask(self) -> Poll:
        """What is new; after an error nothing, with the error as a notice the first time it is met."""
        if self._ended:
            return Poll([], ended=True)
        try:
            found = self.source.poll()
        except SourceError as error:
            fresh = () if str(error) == self._failing else (str(error),)
            self._failing = str(error)
            return Poll([], notices=fresh)
        self._failing, self._ended = "", found.ended
        return found

    def _take(self, found: Poll) -> bool:
        """Remember what came; whether more of the same past is to be had at once."""
        for mark in found.marks:
            self._cut(mark)
        if found.samples:
            self.store.add(found.samples)
            self._record(lambda recorder: recorder.add(found.samples))
        self._notices.extend(notice for notice in found.notices if notice not in self._notices)
        return found.more

    def _mark(self, name: str) -> str:
        """Where the current segment has only just begun, the one before it becomes the baseline and nothing is cut."""
        current, earlier = self._comparison.current, self._comparison.earlier
        if current is None:
            return "Nothing to compare with yet: no sample so far"
        length = current.end_s - current.start_s
        self._next_diagnosis = 0.0
        if length < SHORTEST_BASELINE_S and not name:
            if earlier is None:
                return f"Only {length:.0f} s so far: a baseline needs {SHORTEST_BASELINE_S:.0f} s"
            self._comparison.chosen = earlier.name
            return f"Baseline: {earlier.name}. {current.name} began {length:.0f} s ago and goes on"
        self._comparison.shown = ""
        fresh = self._comparison.unique(name or "after")
        self._cut(Mark(fresh, self._comparison.now_s(), dict(current.tags)))
        self._comparison.chosen = current.name
        self._trials.marked()
        return f"Baseline: {current.name}, {length:.0f} s. From now on: {fresh}"

    def _cut(self, mark: Mark) -> None:
        self.store.mark(mark)
        self._record(lambda recorder: recorder.mark(mark))
        if self._trials.seen(mark) and self._trials.running is not None:
            self._comparison.chosen = self._trials.running.before
        self._next_diagnosis = min(self._next_diagnosis, self._clock() + DIAGNOSE_EVERY_S)

    def _look(self, screen: str) -> str:
        only = screen.removeprefix("replica/") if screen.startswith("replica/") else ""
        if only != self._only:
            self._only = only
            self._reader = Reader(self.store, self.playbooks, self.lab, only, self._slo)
        self._screen = screen
        self.time.moved = True
        return ""

    def _apply(self, finding_id: str, name: str) -> str:
        """Change what the finding's experiment sets, start segment ``name``; later polls judge the prediction."""
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

    def _try(self) -> None:
        """Bring the experiment under way one tick further."""
        overdue = self._trials.overdue(self._comparison.now_s())
        if overdue is not None:
            self._cut(overdue)
        judged = self._trials.judge(self.playbooks)
        if judged is not None:
            self._notices.append(f"{judged.title}: {judged.verdict}")
            self.diagnose_now()

    def _record(self, write: Callable[[Recorder], None]) -> None:
        """Write to the recording that is on; one that cannot go on (a full disk) ends and is told."""
        if self._recorder is None:
            return
        try:
            write(self._recorder)
        except SourceError as error:
            done, self._recorder = self._recorder, None
            done.close()
            self._notices.append(str(error))

    def _toggle_recording(self, path: Path | None) -> str:
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

    def _build(self) -> View:
        about, span, now = self.source.describe(), self.store.span, self._clock()
        self._comparison.until_s = self.time.at_s
        current, baseline = self._comparison.current, self._comparison.baseline
        newest = (span[1] if self.time.at_s is None else self.time.at_s) if span else 0.0
        # What is measured beside an engine goes on while it hangs: its own word counts.
        heard = about.heard_s or newest
        first = baseline.start_s if baseline else span[0] if span else 0.0
        alive, ended, paused = about.alive and not self._failing, self._ended, self.time.at_s is not None
        self._reader.at(current, baseline, self._diagnosis, self.time.overlay, whole=ended and not paused)
        tags = {**about.tags, **(current.tags if current else {})}
        status = self._status(span is not None)
        return replace(
            screens.numbers(self._screen, self._reader, self.time.window(newest - first)),
            target=about.target,
            kind=about.kind,
            now_s=newest or now,
            alive=alive,
            recording=_path_of(self._recorder),
            status=status,
            state=state_of(self._diagnosis, self._down(alive, newest, about), status if span is None else ""),
            tags=tags,
            segments=tuple(
                Span(one.name, one.start_s, one.end_s, one == baseline, one == current)
                for one in self._comparison.segments
            ),
            diagnosis=self._judged_now(alive or ended or paused, about),
            notices=(*tuple(self._notices)[-5:], *self.store.notices),
            can_apply=self.controller is not None and alive and not ended,
            offered=self._offered(alive and not ended),
            knobs={name: tags[name] for name in _KNOBS if name in tags},
            ended=ended,
            stale_s=max(now - heard, 0.0) if span and not ended | paused and now - heard < _LONG_AGO_S else 0.0,
            paused=paused,
            past=paused and span is not None and newest < span[1],
            overlay=self.time.overlay,
            only=self._only,
            trial=self._trials.shown(),
            playbooks=len(self.playbooks) if self._diagnosis else 0,
        )

    def _offered(self, runs: bool) -> tuple[str, ...]:
        """A fleet's screen is offered where there are replicas or ranks to put side by side."""
        found = screens.offered(self.store, self.controller is not None and runs)
        several = len(replicas.names(self.store)) > 1 or len(self.store.keys("rank.kv_bytes")) > 1
        return tuple(name for name in found if name != "fleet" or several)

    def _down(self, alive: bool, newest: float, about: Description) -> str:
        """Since when it is down, and why, in a line; empty while it answers, and before it ever did."""
        heard = about.heard_s or newest
        if alive or not heard:
            return ""
        since = time.strftime("%H:%M:%S", time.localtime(heard))
        why = self._failing or ("its process ended" if about.kind == "ring" else "no answer")
        return f"Engine down since {since}, what is shown is of before: {why}"

    def _judged_now(self, answers: bool, about: Description) -> Diagnosis | None:
        """The diagnosis to show: of something that went silent it says that first."""
        found = self._diagnosis
        return found if answers or found is None else replace(found, down=silence(about) or self._failing)

    def _status(self, has_samples: bool) -> str:
        """Why there is nothing to see, or empty."""
        if self._failing or has_samples:
            return self._failing
        return "The source ended without a sample" if self._ended else "Waiting for the first samples"


def _path_of(recorder: Recorder | None) -> str:
    return str(recorder.path) if recorder is not None else ""
