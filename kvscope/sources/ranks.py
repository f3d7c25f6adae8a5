"""Several flight recorders as one source: ``PID,PID`` or ``a.ring,b.ring``, the ranks of one engine or engines apart.

Everything a recorder says carries its name as ``replica``, so that what it counts adds up and can be told apart. What
ranks do together only the first of them says.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Sequence
from pathlib import Path

from kvscope.errors import SourceError
from kvscope.sources import find
from kvscope.sources._replicas import Labeller, describe
from kvscope.sources.ring import RingSource
from kvscope.sources.source import Description, Poll
from probes.border import exists


def is_list(text: str) -> bool:
    """Whether a target is a list, with commas, of process ids and files."""
    parts = _parts(text)
    return len(parts) > 1 and all(part.isdecimal() or _is_file(part) for part in parts)


class RanksSource:
    """Polls every recorder. It is alive while one of them is; segments are those of the first."""

    def __init__(self, paths: Sequence[Path], sliced: bool = False) -> None:
        sources = [RingSource(path, sliced) for path in paths]
        self._members = [(source, Labeller(name)) for name, source in _named(sources)]

    @classmethod
    def of(cls, text: str, sliced: bool = False) -> RanksSource:
        """Open a list. SourceError when one of it is no recorder."""
        paths = []
        for part in _parts(text):
            if part.isdecimal() and not exists(part):
                paths.append(find.ring_of_pid(int(part)))
                continue
            path = Path(os.path.expanduser(part))
            if (kind := find.kind_of_file(path)) != "ring":
                raise SourceError(f"{path}: a {kind}; expected flight recorders only where several are given")
            paths.append(path)
        return cls(list(dict.fromkeys(paths)), sliced)

    def describe(self) -> Description:
        seen = {label.replica: source.describe() for source, label in self._members}
        alive = sum(one.alive for one in seen.values())
        return describe("rings", ",".join(seen), {name: one.tags for name, one in seen.items()}, alive, len(seen))

    def poll(self) -> Poll:
        polls = [(label, source.poll()) for source, label in self._members]
        samples = [label(poll.samples) for label, poll in polls]
        return Poll(
            list(heapq.merge(*samples, key=lambda sample: sample.t)),
            polls[0][1].marks,
            tuple(f"{label.replica}: {line}" for label, poll in polls for line in poll.notices),
            all(poll.ended for _, poll in polls),
            any(poll.more for _, poll in polls),
        )

    def close(self) -> None:
        for source, _ in self._members:
            source.close()


def _is_file(part: str) -> bool:
    return exists(part) and Path(os.path.expanduser(part)).is_file()


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _named(sources: Sequence[RingSource]) -> list[tuple[str, RingSource]]:
    """By rank, in their order, where these are the ranks of one run; else by process id."""
    runs = {source.run for source in sources}
    if len(runs) == 1 and None not in runs:
        ordered = sorted(sources, key=lambda source: source.rank or 0)
        return [(f"rank {source.rank}", source) for source in ordered]
    return [(f"pid {source.writer}", source) for source in sources]
