"""Several sources as one: an engine first, then what else is known about its machine."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from kvscope.sources.source import Description, Poll, Source


class MergedSource:
    """Polls every source and gives their samples in time order; it is described by, and ends with, the first."""

    def __init__(self, first: Source, others: Sequence[Source] = ()) -> None:
        self._sources = (first, *others)

    def describe(self) -> Description:
        return self._sources[0].describe()

    def poll(self) -> Poll:
        # The engine last: what came about its machine meanwhile must not be newer than what is read next.
        polls = [source.poll() for source in reversed(self._sources)][::-1]
        return Poll(
            list(heapq.merge(*(poll.samples for poll in polls), key=lambda sample: sample.t)),
            tuple(sorted((mark for poll in polls for mark in poll.marks), key=lambda mark: mark.t)),
            tuple(notice for poll in polls for notice in poll.notices),
            polls[0].ended,
            polls[0].more,
        )

    def close(self) -> None:
        for source in self._sources:
            source.close()
