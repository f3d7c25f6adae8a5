"""Filling a store from a target, and what a diagnosis means for the exit code."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from kvscope.errors import EXIT_FINDING, EXIT_OK, NotEnoughData, UsageError, nearest
from kvscope.finding import VERDICT_ORDER

if TYPE_CHECKING:
    from kvscope.config import Settings
    from kvscope.finding import Diagnosis
    from kvscope.playbook import Playbook
    from kvscope.sources._base import Source
    from kvscope.store import Store


def load_playbooks(settings: Settings) -> tuple[Playbook, ...]:
    """The shipped playbooks and the user's own."""
    from kvscope.playbook import load_all

    return load_all((Path(settings.playbooks),) if settings.playbooks else ())


def collect(source: Source, store: Store, settings: Settings, name: str = "") -> tuple[str, ...]:
    """Read a target to its end, or watch it for ``settings.duration`` seconds; returns the notices it gave.

    With ``name`` everything read becomes one segment of that name. NotEnoughData when nothing came at all.
    """
    from kvscope.commands._progress import Line
    from kvscope.sources._base import Mark

    line, notices, began, first = Line(), [], time.monotonic(), True
    try:
        while True:
            poll = source.poll()
            if name and first and poll.samples:
                store.mark(Mark(name, poll.samples[0].t, source.describe().tags))
                first = False
            for mark in poll.marks if not name else ():
                store.mark(mark)
            store.add(poll.samples)
            notices += [notice for notice in poll.notices if notice not in notices]
            left = settings.duration - (time.monotonic() - began)
            if poll.ended or left <= 0:
                break
            line.show(f"watching {source.describe().target} … {left:.0f} s left")
            time.sleep(min(settings.interval, max(0.0, left)))
    finally:
        line.wipe()
    if store.span is None:
        raise NotEnoughData(f"{source.describe().target}: no sample in {settings.duration:g} s, expected some")
    return tuple(notices)


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


def exit_code(found: Diagnosis, fail_on: str) -> int:
    """1 when a finding's verdict is ``fail_on`` or stronger, else 0."""
    counting = VERDICT_ORDER[: VERDICT_ORDER.index(fail_on) + 1]
    return EXIT_FINDING if any(finding.verdict in counting for finding in found.findings) else EXIT_OK
