"""Which two segments a rule compares, and whether they may be compared at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kvscope.errors import UsageError, nearest
from kvscope.judge import MARK_ONE, NO_BASELINE, Pair
from kvscope.playbook_schema import Compare
from kvscope.store import Segment, Store

ONE_PROCESS = ("ring", "builtin")
"""Kinds of source whose stream comes from one uninterrupted process: what no tag names cannot have changed there."""


@dataclass(frozen=True, slots=True)
class Comparable:
    """A pair, and why it must not be compared (empty when it may); ``notice`` says what was taken on trust."""

    pair: Pair
    problem: str = ""
    remedy: str = ""
    notice: str = ""


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


def comparable(pair: Pair, compare: Compare, common: Mapping[str, str], kind: str) -> Comparable:
    """Hold the tags of both segments against each other; ``common`` are the source's own, carried by every segment."""
    if pair.baseline is None:
        return Comparable(pair, NO_BASELINE, MARK_ONE)
    before, now = {**common, **pair.baseline.tags}, {**common, **pair.current.tags}
    unknown = []
    for tag in compare.same:
        if tag in before and tag in now:
            if before[tag] != now[tag]:
                return Comparable(
                    pair,
                    f"{tag} differs: {before[tag]} in {pair.baseline.name}, {now[tag]} in {pair.current.name}",
                    f"compare segments with the same {tag}",
                )
        elif kind not in ONE_PROCESS:
            place = pair.baseline.name if tag not in before else pair.current.name
            return Comparable(pair, f"nobody says what {tag} was in {place}", f"tag both segments with {tag}=…")
        else:
            unknown.append(tag)
    notice = f"taken as unchanged, nobody tagged them: {', '.join(unknown)}" if unknown else ""
    return Comparable(pair, notice=notice)
