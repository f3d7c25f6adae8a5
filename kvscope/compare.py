"""Which two segments a rule compares, and whether they may be compared at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kvscope.errors import UsageError, nearest
from kvscope.finding import Evidence, Rival
from kvscope.judge import MARK_ONE, NO_BASELINE, Pair
from kvscope.playbook_schema import Compare
from kvscope.signals.reading import Missing, Reading
from kvscope.store import Segment, Store

ONE_PROCESS = ("ring", "builtin")
"""Kinds of source whose stream comes from one uninterrupted process: what no tag names cannot have changed there."""


LOAD_WITHIN = 0.10
"""Requests whose mean length or rate moved by no more are the same load: a day's traffic varies by as much."""


@dataclass(frozen=True, slots=True)
class Comparable:
    """A pair, and why it must not be compared (empty when it may); ``notice`` says what was taken on trust.

    ``doubts`` are what nobody said or measured: they cost a step of certainty. ``rivals`` are differences of the load.
    """

    pair: Pair
    problem: str = ""
    remedy: str = ""
    notice: str = ""
    doubts: tuple[str, ...] = ()
    rivals: tuple[Rival, ...] = ()


@dataclass(frozen=True, slots=True)
class Said:
    """What a person says of the two sides: what is the ``same`` in both, and what was ``changed``."""

    same: frozenset[str] = frozenset()
    changed: frozenset[str] = frozenset()


NOTHING_SAID = Said()


def choose(store: Store, compare: Compare | None, baseline: str | None, current: str | None) -> Pair:
    """Return the pair to judge: as asked, else the playbook's own names, else the last two segments."""
    segments = store.segments
    now = named(segments, current) if current else segments[-1]
    if compare is None:
        return Pair(store, now)
    if baseline:
        return Pair(store, now, named(segments, baseline))
    have = {segment.name for segment in segments}
    if not current and {compare.baseline, compare.current} <= have:
        return Pair(store, named(segments, compare.current), named(segments, compare.baseline))
    if current and compare.baseline in have and compare.baseline != current:
        return Pair(store, now, named(segments, compare.baseline))
    earlier = [segment for segment in segments if segment.start_s < now.start_s]
    return Pair(store, now, earlier[-1] if earlier else None)


def named(segments: tuple[Segment, ...], name: str) -> Segment:
    """Return the newest segment of that name; UsageError lists the names there are."""
    for segment in reversed(segments):
        if segment.name == name:
            return segment
    names = [segment.name for segment in segments]
    raise UsageError(f"no segment {name!r}{nearest(name, names)}; there are: {', '.join(names)}")


def comparable(
    pair: Pair, compare: Compare, common: Mapping[str, str], kind: str, said: Said = NOTHING_SAID
) -> Comparable:
    """Hold what both segments say of themselves against each other; ``common`` are the source's own tags.

    What nobody says is taken as unchanged, and told: where it was not measured either, a finding loses one step of
    certainty. What the sources say of the load stands for the tags ``workload`` and ``offered_load``: a difference is
    another possible cause, with its number.
    """
    if pair.baseline is None:
        return Comparable(pair, NO_BASELINE, MARK_ONE)
    before, now = {**common, **pair.baseline.tags}, {**common, **pair.current.tags}
    unknown: list[str] = []
    rivals: list[Rival] = []
    for tag in compare.same:
        if tag in said.changed:
            return Comparable(pair, f"{tag} was changed, as you say", f"compare segments with the same {tag}")
        if tag in said.same:
            continue
        if before.get(tag) and now.get(tag):
            if _differs(tag, before[tag], now[tag]):
                return Comparable(
                    pair,
                    f"{tag} differs: {before[tag]} in {pair.baseline.name}, {now[tag]} in {pair.current.name}",
                    f"compare segments with the same {tag}",
                )
            continue
        measured = None if kind in ONE_PROCESS else measured_load(tag, pair)
        if measured is None:
            unknown.append(tag)
        rivals += measured or ()
    notice = f"taken as unchanged, nobody tagged them: {', '.join(unknown)}" if unknown else ""
    doubts = () if kind in ONE_PROCESS else tuple(unknown)
    return Comparable(pair, notice=notice, doubts=doubts, rivals=tuple(rivals))


def measured_load(tag: str, pair: Pair) -> tuple[Rival, ...] | None:
    """Return how the load changed, as rivals, from what was measured: None where the sources do not tell.

    ``workload`` are the lengths of prompts and answers. ``offered_load`` is the same where as many requests came, or
    where as many were in the server: a slower server changes the one or the other, and other clients both.
    """
    if tag == "workload":
        found = [_change(signal, pair) for signal in ("prompt_tokens_mean", "output_tokens_mean")]
        if any(one is None for one in found):
            return None
        return tuple(_rival("other requests", one) for one in found if one is not None and one.answer == "no")
    if tag == "offered_load":
        clients, rate = _clients(pair), _change("requests_per_s", pair)
        known = [one for one in (clients, rate) if one is not None]
        if any(one.answer == "yes" for one in known):
            return ()
        if clients is None or rate is None:
            return None
        return _rival("another load", clients), _rival("another load", rate)
    return None


MACHINE = (
    ("host_throttled_share", 0.2, "the host is stopped by its processor quota", "host-throttled"),
    ("host_starved_share", 0.1, "the host is starved of memory or of processor time", "host-starved"),
    ("device_throttled_share", 0.2, "the device's clocks are held down", "device-throttled"),
)
"""What a machine does to any figure: the signal, from where on it matters, how it is said, and which rule looks."""
_MORE = 0.05
"""Between two segments, a share that grew by no more explains no difference between them."""


def machine(rule: str, pair: Pair) -> tuple[Rival, ...]:
    """Return what the machine was doing meanwhile, as rivals of any rule but its own; what nobody measured is none.

    Of two segments the one now must have it worse: what held in both explains no change.
    """
    found = []
    for signal, least, says, look in MACHINE:
        now, before = pair.now(signal), pair.before(signal) if pair.baseline is not None else None
        if rule == look or not isinstance(now, Reading) or now.value < least:
            continue
        if isinstance(before, Reading) and now.value - before.value < _MORE:
            continue
        was = before.value if isinstance(before, Reading) else None
        evidence = Evidence(
            look, signal, f"<= {least:.0%}", "no", now.value, unit=now.unit, baseline=was, source=now.source
        )
        found.append(Rival(look.replace("-", " "), says, "open", evidence, look))
    return tuple(found)


def _differs(tag: str, before: str, now: str) -> bool:
    """Whether two tags contradict: a version that a page's names tell is a bracket, and agrees with what lies in it."""
    if tag == "version" and any(mark in text for text in (before, now) for mark in ("+", "-", "up to")):
        return False
    return before != now


def _change(signal: str, pair: Pair) -> Evidence | None:
    return _compared(signal, pair.before(signal), pair.now(signal))


def _clients(pair: Pair) -> Evidence | None:
    """Requests in the server, running or waiting: what a closed loop of clients keeps as it is."""
    sides = []
    for read in (pair.before, pair.now):
        running, waiting = read("running_requests"), read("waiting_requests")
        if isinstance(running, Missing) or isinstance(waiting, Missing):
            return None
        error = (running.error**2 + waiting.error**2) ** 0.5
        sides.append(replace(running, value=running.value + waiting.value, error=error))
    return _compared("running_requests + waiting_requests", *sides)


def _compared(signal: str, before: Reading | Missing, now: Reading | Missing) -> Evidence | None:
    """Answer whether a figure of the load stayed within a tenth of what it was; yes also where it cannot be told."""
    if isinstance(before, Missing) or isinstance(now, Missing) or before.value <= 0:
        return None
    change = now.value / before.value - 1
    error = (now.error**2 + (before.error * now.value / before.value) ** 2) ** 0.5 / before.value
    moved = abs(change) > LOAD_WITHIN and abs(change) > error
    return Evidence(
        "load",
        signal,
        f"within {LOAD_WITHIN:.0%} of before",
        "no" if moved else "yes",
        value=now.value,
        error=now.error,
        unit=now.unit,
        baseline=before.value,
        baseline_error=before.error,
        change=change,
        change_error=error,
        source=now.source,
        batches=now.batches,
    )


def _rival(name: str, evidence: Evidence) -> Rival:
    says = (
        f"the load changed as well: {evidence.signal} {evidence.baseline:.4g} → {evidence.value:.4g} {evidence.unit}"
        if evidence.baseline is not None and evidence.value is not None
        else "the load changed as well"
    )
    return Rival(name, says, "open", evidence)
