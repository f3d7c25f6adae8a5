"""Experiments: the one under way, with the segment before and the segment after, and the verdicts of earlier ones."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kvscope.finding import VERDICT_ORDER, Diagnosis, Finding
from kvscope.signals.significance import FEWEST_WINDOWS
from kvscope.sources.source import Mark
from kvscope.store import Store
from kvscope.view import Trial

if TYPE_CHECKING:
    from kvscope.playbook_schema import Playbook

EARLY_S = 10.0
"""A prediction that holds may be believed from here on."""
NEED_S = 30.0
"""One that fails is believed from here on: requests of the old configuration have left by then."""
GIVE_UP_S = 180.0
OWN_MARK_AFTER_S = 3.0
"""A source that reports configuration changes has this long to start the segment of an applied change itself."""


@dataclass(slots=True)
class Running:
    """``after`` is empty until the engine, or the session for it, has started the new segment."""

    finding: Finding
    change: str
    before: str
    asked_s: float
    name: str
    after: str = ""
    windows: int = 0
    """Windows of samples on the shorter side of the change, of those that it takes to tell."""

    def have_s(self, store: Store) -> float:
        """Seconds measured since the change."""
        found = [segment for segment in store.segments if segment.name == self.after]
        return found[-1].end_s - found[-1].start_s if found else 0.0


@dataclass(slots=True)
class Trials:
    """At most one experiment runs; what earlier ones confirmed stays in the list, with what it brought."""

    store: Store
    running: Running | None = None
    judged: dict[str, Finding] = field(default_factory=dict)

    def start(self, running: Running) -> None:
        """An experiment was applied."""
        self.judged.pop(running.finding.id, None)
        self.running = running

    def marked(self) -> None:
        """Somebody began anew: what an experiment confirmed still holds, what it left open or refuted is over."""
        self.judged = {id: one for id, one in self.judged.items() if one.verdict == "confirmed"}

    def seen(self, mark: Mark) -> bool:
        """A segment started: whether it is the one the experiment waits for."""
        running = self.running
        if running is None or running.after or mark.t < running.asked_s:
            return False
        running.after = mark.name
        return True

    def overdue(self, now_s: float) -> Mark | None:
        """The mark that the session has to make itself, because the source reported none."""
        running = self.running
        if running is None or running.after or now_s < running.asked_s + OWN_MARK_AFTER_S:
            return None
        before = next((one for one in reversed(self.store.segments) if one.name == running.before), None)
        sets = dict(running.finding.experiment.set) if running.finding.experiment else {}
        return Mark(running.name, running.asked_s, {**(before.tags if before else {}), **sets})

    def judge(self, playbooks: Iterable[Playbook]) -> Finding | None:
        """The finding once its prediction can be judged; None while it is too early to say."""
        running = self.running
        if running is None or not running.after:
            return None
        found = self._verdict(running, playbooks)
        if found is not None:
            self.judged[found.id] = found
            self.running = None
        return found

    def _verdict(self, running: Running, playbooks: Iterable[Playbook]) -> Finding | None:
        if self.store.segments[-1].name != running.after:
            note = f"{running.finding.notes} Not verified: another change came first.".strip()
            return replace(running.finding, notes=note)
        have = running.have_s(self.store)
        from kvscope.compare import named
        from kvscope.verification import verify_change

        rule = next(one for one in playbooks if one.id == running.finding.id)
        before, after = (named(self.store.segments, name) for name in (running.before, running.after))
        tried = verify_change(running.finding, rule, self.store, before, after)
        running.windows = tried.windows
        least_s = {"confirmed": EARLY_S, "refuted": NEED_S}
        told = have >= least_s.get(tried.outcome, math.inf)
        if not told and have < GIVE_UP_S:
            return None
        notes = "" if told else f"Not verified: {tried.why}."
        notes = " ".join(part for part in (tried.finding.notes, notes) if part)
        return replace(tried.finding, baseline=running.before, current=running.after, notes=notes)

    def shown(self) -> Trial | None:
        """For the view."""
        running = self.running
        if running is None:
            return None
        return Trial(running.finding.id, running.change, running.windows, FEWEST_WINDOWS)

    def merged(self, diagnosis: Diagnosis) -> Diagnosis:
        """The diagnosis with findings under trial, or judged by one, in place of its own of the same id.

        A cause that is seen again after it was confirmed is a finding of its own.
        """
        seen = {one.id: one.current for one in diagnosis.findings if one.verdict in ("likely", "possible")}
        kept = {id: one for id, one in self.judged.items() if seen.get(id, one.current) == one.current}
        if self.running is not None:
            kept[self.running.finding.id] = self.running.finding
        if not kept:
            return diagnosis
        together = [*kept.values(), *(finding for finding in diagnosis.findings if finding.id not in kept)]
        return replace(diagnosis, findings=tuple(sorted(together, key=lambda f: VERDICT_ORDER.index(f.verdict))))
