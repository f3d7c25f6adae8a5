"""Filling a store from a target, and what a diagnosis means for the exit code."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, overload

from kvscope.errors import EXIT_FINDING, EXIT_NO_DATA, EXIT_OK, EXIT_SOURCE, NotEnoughData, UsageError, nearest
from kvscope.finding import fails, unanswered

if TYPE_CHECKING:
    from kvscope.config import Settings
    from kvscope.finding import Diagnosis, Verdict
    from kvscope.playbook import Playbook
    from kvscope.signals.reading import Missing, Reading
    from kvscope.sources.source import Mark, Poll, Source
    from kvscope.store import Segment, Store
    from probes.sample import Sample


def load_playbooks(settings: Settings) -> tuple[Playbook, ...]:
    """The shipped playbooks and the user's own. UsageError names file, line and key of a mistake."""
    from kvscope.playbook import load_all

    return load_all((Path(settings.playbooks),) if settings.playbooks else ())


class Shelf(Sequence["Playbook"]):
    """The playbooks of ``settings``, read when somebody first asks for one."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @cached_property
    def _books(self) -> tuple[Playbook, ...]:
        return load_playbooks(self._settings)

    @overload
    def __getitem__(self, index: int) -> Playbook: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Playbook, ...]: ...

    def __getitem__(self, index: int | slice) -> Playbook | tuple[Playbook, ...]:
        return self._books[index]

    def __len__(self) -> int:
        return len(self._books)


def collect(source: Source, settings: Settings) -> Poll:
    """Read a target to its end, or watch it for ``settings.duration`` seconds; everything it gave, as one poll.

    NotEnoughData when nothing came at all.
    """
    from kvscope.progress import Line
    from kvscope.sources.clock import silence
    from kvscope.sources.source import Poll

    line, began = Line(), time.monotonic()
    samples: list[Sample] = []
    marks: list[Mark] = []
    notices: dict[str, None] = {}
    try:
        while True:
            poll = source.poll()
            samples += poll.samples
            marks += poll.marks
            notices.update(dict.fromkeys(poll.notices))
            left = settings.duration - (time.monotonic() - began)
            if poll.ended or left <= 0:
                break
            line.show(f"watching {source.describe().target} … {left:.0f} s left")
            time.sleep(min(settings.interval, max(0.0, left)))
    finally:
        line.wipe()
    if not samples:
        raise NotEnoughData(f"{source.describe().target}: no sample in {settings.duration:g} s, expected some")
    silent = "" if poll.ended else silence(source.describe())
    return Poll(samples, tuple(marks), (*notices, *([silent] if silent else [])), ended=True, silent=silent)


def fill(store: Store, read: Poll) -> None:
    """Take a target as it is, with the segments it marked."""
    for mark in read.marks:
        store.mark(mark)
    store.add(read.samples)


def fill_pair(store: Store, baseline: Poll, current: Poll, tags: tuple[dict[str, str], dict[str, str]]) -> None:
    """Take two targets as the segments ``baseline`` and ``current``, whenever each was recorded.

    A baseline that was recorded later is moved to end a second before the other begins: only its order changes.
    """
    from kvscope.sources.source import Mark

    begins = current.samples[0].t
    earlier = min(0.0, begins - 1.0 - max(sample.t for sample in baseline.samples))
    store.mark(Mark("baseline", baseline.samples[0].t + earlier, tags[0]))
    store.add(sample._replace(t=sample.t + earlier) for sample in baseline.samples)
    # A moment earlier: what the second target says first must not be the last that is known of the first.
    store.mark(Mark("current", begins - 0.001, tags[1]))
    store.add(current.samples)


def refuse_incomparable(found: Diagnosis, baseline: str, target: str) -> None:
    """Raise NotEnoughData where the two targets have not one measured figure in common, and say what each has."""
    before, now = (
        next((one.signals for one in found.segments if one.name == name), {}) for name in ("baseline", "current")
    )
    ours = {name for name in now if not _setting(name)}
    theirs = {name for name in before if not _setting(name)}
    if ours & theirs:
        return
    raise NotEnoughData(
        f"nothing comparable: {baseline} tells {_some(theirs)}, {target} tells {_some(ours)}; expected a figure in both"
    )


def _setting(name: str) -> bool:
    from kvscope.signals import describe

    return all(metric.startswith("config.") for metric in describe(name)[2])


def _some(names: set[str]) -> str:
    shown = sorted(names)
    return ", ".join(shown[:4]) + (f" and {len(shown) - 4} more" if len(shown) > 4 else "") if shown else "no figure"


def segment_pair(text: str | None, store: Store) -> tuple[str | None, str | None]:
    """Split ``BASELINE,CURRENT``; UsageError names the segments there are."""
    if not text:
        return None, None
    names = [segment.name for segment in store.segments]
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 2:
        raise UsageError(f"--segments {text!r}: expected BASELINE,CURRENT; segments: {', '.join(names)}")
    for part in parts:
        if part not in names:
            raise UsageError(f"--segments: no segment {part!r}{nearest(part, names)}; segments: {', '.join(names)}")
    return parts[0], parts[1]


def exit_code(found: Diagnosis, fail_on: Verdict) -> int:
    """1 when a finding's verdict is ``fail_on`` or stronger, 3 when the target went silent, 4 when no rule could be
    judged, else 0."""
    if any(fails(finding, fail_on) for finding in found.findings):
        return EXIT_FINDING
    if found.down:
        return EXIT_SOURCE
    return EXIT_NO_DATA if unanswered(found) else EXIT_OK


_BRIEF_S = 0.4
_BRIEF_POLLS = 3


def told_of(targets: Iterable[str]) -> dict[str, str]:
    """Return target → its load, tokens and pool in a line, after a glance of a second at all of them together."""
    from contextlib import closing, suppress

    from kvscope.errors import KvscopeError
    from kvscope.sources import open_target
    from kvscope.store import Store
    from kvscope.vitals import vitals

    sources = {}
    for target in targets:
        with suppress(KvscopeError):
            sources[target] = (open_target(target), Store())
    for _ in range(_BRIEF_POLLS):
        for source, store in sources.values():
            with suppress(KvscopeError):
                store.add(source.poll().samples)
        time.sleep(_BRIEF_S if sources else 0.0)
    found: dict[str, str] = {}
    for target, (source, store) in sources.items():
        with closing(source):
            segment = store.segments[-1] if store.segments else None
            lines = vitals(partial(_read, store, segment)) if segment else ()
        if lines:
            found[target] = " · ".join(line.text for line in lines if line.name in ("load", "tokens", "kv"))
    return found


def _read(store: Store, segment: Segment, name: str) -> Reading | Missing:
    from kvscope import signals

    return signals.compute(name, store, segment)
