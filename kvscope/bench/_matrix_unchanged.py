"""Verify changes that were never made: neighbouring stretches of one engine, judged by every experiment there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import pairwise

from kvscope.bench._matrix_plan import Case
from kvscope.bench._matrix_run import only
from kvscope.diagnose import diagnose
from kvscope.laboratory import Laboratory, Length
from kvscope.playbook_schema import Playbook
from kvscope.sources import open_target
from kvscope.sources.builtin import BuiltinEngine
from kvscope.store import Segment
from kvscope.verification import Outcome, verify_change

STRETCH = Length(steps=60, least_s=1.5, most_s=6.0)
WARM = Length(steps=40, least_s=1.0, most_s=15.0)
KEPT = 3
Judged = tuple[str, Outcome]


def run(
    case: Case, pairs: int, playbooks: Sequence[Playbook], tell: Callable[[str], None]
) -> Iterator[tuple[Judged, ...]]:
    """Return, of each pair of neighbouring stretches, every playbook's answer; the engine is started once.

    Each stretch is held against the next, so that ``pairs`` of them need one stretch more. What the predictions read
    must have a value: a playbook that measures nothing here is left out.
    """
    engine = BuiltinEngine.start(
        case.faulty, (*case.options, "--threads", "1"), lambda s: tell(f"starting … {s:.0f} s")
    )
    try:
        assert engine.ring is not None
        assert engine.control is not None
        with closing(open_target(str(engine.ring))) as source:
            lab = Laboratory(source, engine.control, tell=tell)
            lab.settle("warming up", WARM, int(case.faulty.get("load.clients", "0")))
            for before, after in pairwise(stretches(lab, pairs + 1)):
                yield tuple(_judged(lab, before, after, playbooks))
    finally:
        engine.stop(keep_recorder=False)


def stretches(lab: Laboratory, count: int) -> Iterator[Segment]:
    """Measure so many stretches in a row.

    The store forgets all but the pair judged and the one before it, against which the first of the pair is diagnosed:
    the last pair then takes as long to judge as the first.
    """
    for index in range(count):
        stretch = lab.stretch(f"unchanged-{index}", STRETCH)
        lab.store = only(lab.store, lab.store.segments[-KEPT:])
        yield stretch


def _judged(lab: Laboratory, before: Segment, after: Segment, playbooks: Sequence[Playbook]) -> Iterator[Judged]:
    found = diagnose(lab.store, playbooks, lab.source.describe(), current=before.name, include_silent=True)
    findings = {finding.id: finding for finding in found.findings}
    # The open segment has grown since it was measured: read it as it stands now.
    after = next(one for one in reversed(lab.store.segments) if one.name == after.name)
    for rule in playbooks:
        if rule.experiment is None or not rule.experiment.predict:
            continue
        verified = verify_change(findings[rule.id], rule, lab.store, before, after)
        if not all(one.evidence.missing for one in verified.predicted):
            yield rule.id, verified.outcome
