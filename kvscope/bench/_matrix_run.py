"""A case of the matrix: the engine with its fault, measured once a seed and diagnosed as a user would; kept, judged
again, and left unchanged to see what is said then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from kvscope.bench._matrix_plan import Case
from kvscope.diagnose import diagnose
from kvscope.errors import UsageError
from kvscope.experiment import changed, rule_of, settings
from kvscope.faults import Truth
from kvscope.finding import Diagnosis, Finding
from kvscope.laboratory import Laboratory, Length
from kvscope.playbook_schema import Playbook
from kvscope.recording.reader import Recording
from kvscope.recording.recorder import Recorder
from kvscope.sources import open_target
from kvscope.sources.builtin import BuiltinEngine
from kvscope.sources.source import Description, Mark, Poll
from kvscope.store import Segment, Store
from kvscope.verification import Outcome as Verified
from kvscope.verification import sure, verify_change
from probes.catalog import CATALOG
from probes.sample import Sample

SHOWN = ("likely", "possible")
WARM = Length(steps=40, least_s=1.0, most_s=15.0)
"""Documents are read for the first time: not what is asked about, unless it is the fault."""
MEASURED = Length(steps=300, least_s=6.0, most_s=20.0)
FURTHER = Length(steps=0, least_s=3.0, most_s=3.0)
SURE, LONGEST_S = 0.10, 30.0
"""A gain is measured until its interval is that narrow, or for so long on each side."""
AT_START = Length(steps=150, least_s=3.0, most_s=20.0)
"""Of an engine that has only just begun; a slow one must have read its documents by the end, too."""
Named = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was said of one run. ``named`` are findings a person sees, strongest first, folded ones left out."""

    kind: str
    label: str
    seed: int
    expected: tuple[str, ...]
    named: tuple[Named, ...]
    folded: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    untrue: tuple[str, ...] = ()
    """Counters of the fault's truth that do not show it: it was set, and did not come about."""
    steps: float = 0.0
    seconds: float = 0.0
    trial: Named = field(default_factory=dict)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Outcome:
        """Read one back; KeyError or TypeError when it is none."""
        lists = ("expected", "named", "folded", "unknown", "untrue")
        return cls(**{**found, **{key: tuple(found[key]) for key in lists}})

    @property
    def said(self) -> str:
        """The cause named first of what was not there before the fault, or nothing."""
        return next((str(one["slug"]) for one in self.named if not one.get("before")), "")

    @property
    def slugs(self) -> tuple[str, ...]:
        """Every cause a person reads, roots before what is folded beneath them."""
        return (*(str(one["slug"]) for one in self.named), *self.folded)


def run(
    case: Case,
    seeds: Sequence[int],
    playbooks: Sequence[Playbook],
    tell: Callable[[str], None],
    *,
    verify: bool = False,
    keep: Callable[[Outcome, Store, Description], None] = lambda *_: None,
) -> Iterator[Outcome]:
    """Start the case's engine as it should be, where its fault has a fix; then measure the fault under each seed.

    With ``verify`` the experiment of what was found is tried, too. ``keep`` gets what each run was judged by.
    """
    if case.from_start and len(seeds) > 1:
        # An engine begins only once: what the next seed would read is cached by then.
        for seed in seeds:
            yield from run(case, (seed,), playbooks, tell, verify=verify, keep=keep)
        return
    start = case.sound or case.faulty
    if case.from_start:
        start = {**start, "load.clients": "0"}
    engine = BuiltinEngine.start(
        {**start, "load.seed": str(seeds[0])},
        (*case.options, "--threads", "1"),
        lambda s: tell(f"starting … {s:.0f} s"),
    )
    try:
        assert engine.ring is not None
        assert engine.control is not None
        with closing(open_target(str(engine.ring))) as source:
            lab, baseline = Laboratory(source, engine.control, tell=tell), None
            if case.sound:
                lab.settle(f"{case.label}, warming up", WARM, _clients(case.sound))
                baseline = lab.stretch(f"{case.label}, as it should be", MEASURED)
            for seed in seeds:
                segment, steps = _measured(case, seed, lab)
                seen = only(lab.store, (baseline, segment) if baseline else (segment,))
                found = outcome(case, seed, lab, segment, seen, playbooks, steps)
                keep(found, seen, source.describe())
                yield replace(found, trial=_tried(found, lab, baseline, segment, playbooks)) if verify else found
                if case.kind == "healthy" and baseline is None:
                    baseline = segment
    finally:
        engine.stop(keep_recorder=False)


def _tried(
    found: Outcome, lab: Laboratory, baseline: Segment | None, segment: Segment, playbooks: Sequence[Playbook]
) -> Named:
    """Turn the knob of the first finding that has one, and back; compare its gain with the one expected; {} without."""
    for said in found.named:
        rule = rule_of(playbooks, said["id"])
        if rule.experiment is None or not rule.experiment.set or rule.gain is None:
            continue
        before = until_sure(lab, segment, rule.gain.measured_by)
        seen = only(lab.store, (baseline, before) if baseline else (before,))
        diagnosis = diagnose(seen, playbooks, lab.source.describe(), include_silent=True)
        finding = next(one for one in diagnosis.findings if one.id == rule.id)
        wanted, former = settings(lab, dict(rule.experiment.set))
        after = until_sure(lab, changed(lab, f"{segment.name}, changed", wanted, MEASURED), rule.gain.measured_by)
        back = until_sure(lab, changed(lab, f"{segment.name}, back", former, MEASURED), rule.gain.measured_by)
        tried = verify_change(finding, rule, lab.store, before, after, (back,))
        return {
            "finding": rule.id,
            "outcome": tried.outcome,
            "of": rule.gain.of,
            "shows": rule.gain.measured_by,
            "expected": said.get("expected"),
            "bound": said.get("bound"),
            "measured": tried.measured_gain,
            "error": tried.measured_error,
        }
    return {}


def until_sure(lab: Laboratory, segment: Segment, signal: str) -> Segment:
    """Watch on in a segment until a signal is known well enough; two such errors make the gain's."""
    while segment.end_s - segment.start_s < LONGEST_S and not sure(signal, lab.store, segment, SURE / 2**0.5):
        segment = lab.longer(segment, FURTHER)
    return segment


def _clients(knobs: Mapping[str, str]) -> int:
    return int(knobs.get("load.clients", "0"))


def _measured(case: Case, seed: int, lab: Laboratory) -> tuple[Segment, float]:
    """Bring the fault about and measure it once what was there before has left; the segment and its steps."""
    name = f"{case.label}, seed {seed}"
    change = {**case.faulty, "load.seed": str(seed)}
    if not case.from_start:
        lab.control.set(change, f"{name}, settling")
        lab.settle(f"{name}, settling", WARM, _clients(case.faulty))
    segment = lab.stretch(name, *(AT_START, change) if case.from_start else (MEASURED,))
    first = lab.store.latest("batch.steps", before_s=segment.start_s) or 0.0
    return segment, lab.count("batch.steps") - first


def outcome(
    case: Case,
    seed: int,
    lab: Laboratory,
    segment: Segment,
    seen: Store,
    playbooks: Sequence[Playbook],
    steps: float,
) -> Outcome:
    """Diagnose what was ``seen``: one segment, after the baseline where there is one."""
    return Outcome(
        case.kind,
        case.label,
        seed,
        case.expected,
        *judged(seen, playbooks, lab.source.describe()),
        tuple(str(truth) for truth in case.truths if not _holds(truth, lab.store, segment)),
        steps,
        segment.end_s - segment.start_s,
    )


def judged(
    seen: Store, playbooks: Sequence[Playbook], description: Description
) -> tuple[tuple[Named, ...], tuple[str, ...], tuple[str, ...]]:
    """Return what these playbooks say: findings a person sees, those folded beneath them, and what cannot be told."""
    found = diagnose(seen, playbooks, description)
    shown = [one for one in found.findings if one.verdict in SHOWN]
    return (
        tuple(_named(one) for one in shown if not one.explained_by),
        tuple(one.slug for one in shown if one.explained_by),
        _unknown(found),
    )


def only(store: Store, segments: Sequence[Segment]) -> Store:
    """Return a store that holds these segments and nothing else, as if nobody had watched in between."""
    found = Store()
    for segment in segments:
        found.mark(Mark(segment.name, segment.start_s, segment.tags))
        for metric in store.metrics():
            for labels in store.keys(metric):
                times, values = store.series(metric, labels, segment.start_s, segment.end_s)
                found.add(Sample(metric, value, t, labels) for t, value in zip(times, values, strict=True))
    return found


def _holds(truth: Truth, store: Store, segment: Segment) -> bool:
    """Whether the engine's own counters say that the fault is there."""
    values = [_counted(name, store, segment) for name in (truth.counter, truth.per) if name]
    if any(value is None for value in values):
        return False
    top, *bottom = (value for value in values if value is not None)
    return truth.holds(top / max(bottom[0], 1e-12) if bottom else top)


def _counted(name: str, store: Store, segment: Segment) -> float | None:
    """A counter's growth over a segment (its first row included), a gauge's mean."""
    _, values = store.series(name, (), segment.start_s, segment.end_s)
    if not values:
        return None
    if CATALOG[name].kind != "counter":
        return sum(values) / len(values)
    return values[-1] - (store.latest(name, before_s=segment.start_s) or 0.0)


def _named(finding: Finding) -> Named:
    gain = finding.gain
    told = {"expected": gain.expected, "bound": gain.bound} if gain else {}
    before = {"before": True} if finding.persists else {}
    return {"id": finding.id, "slug": finding.slug, "verdict": finding.verdict, **told, **before}


def _unknown(found: Diagnosis) -> tuple[str, ...]:
    doubtful = [f"{one.id}: {one.notes}" for one in found.findings if one.verdict in ("needs_data", "unexplained")]
    return tuple(doubtful)


def keep(folder: Path, run: Outcome, seen: Store, description: Description) -> None:
    """Write what a run was judged by; a recording of the same run from before is replaced.

    UsageError when the folder cannot be written.
    """
    path = _path(folder, run)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"--keep {folder}: {error.strerror or error}") from error
    samples = [
        Sample(metric, value, t, labels)
        for metric in seen.metrics()
        for labels in seen.keys(metric)
        for t, value in zip(*seen.series(metric, labels), strict=True)
    ]
    marks = tuple(Mark(segment.name, segment.start_s, segment.tags) for segment in seen.segments)
    with closing(Recorder(path, description)) as recorder:
        recorder.write(Poll(sorted(samples, key=lambda sample: sample.t), marks))


def again(folder: Path, run: Outcome, playbooks: Sequence[Playbook]) -> Outcome:
    """Judge a kept run by these playbooks; SourceError when its recording is not there or not whole.

    What was tried then stays as it was: an experiment cannot be made again.
    """
    with closing(Recording(_path(folder, run))) as recording:
        source, tags = recording.header["source"], recording.header["tags"]
        seen = Store()
        for mark in recording.marks:
            seen.mark(mark)
        seen.add(recording.samples())
    named, folded, unknown = judged(seen, playbooks, Description(**source, tags=tags))
    return replace(run, named=named, folded=folded, unknown=unknown)


def _path(folder: Path, run: Outcome) -> Path:
    return folder / f"{run.label.replace('/', '-')}-{run.seed}.db"


STRETCH = Length(steps=60, least_s=1.5, most_s=6.0)
WARM = Length(steps=40, least_s=1.0, most_s=15.0)
KEPT = 3
Judged = tuple[str, Verified]


def run_unchanged(
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
