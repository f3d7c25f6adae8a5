"""What limited the engine when: the account's first level, bin by bin, and the account of just now."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kvscope.account.account import Account, Shares, account, limit_of
from kvscope.account.facts import NO_FACTS, Facts
from kvscope.signals.limits import admission
from kvscope.signals.reading import Missing
from kvscope.signals.samples import Samples
from kvscope.store import Segment, Store

NOW_S = 16.0
"""Seconds that count as now: half of them make a limit, so one that comes or goes is seen within some 10 s."""
MOST_BINS = 400


@dataclass(frozen=True, slots=True)
class Bin:
    """``shares`` of admission between two times, None where nobody tells; ``limit`` names the one that holds."""

    start_s: float
    end_s: float
    shares: Shares | None
    limit: str


class Strip:
    """Bins of ``bin_s`` seconds. Keep the object: a bin that is over is read once."""

    def __init__(self, bin_s: float = 10.0) -> None:
        if bin_s <= 0:
            raise ValueError(f"bin_s is {bin_s}, expected more than 0 seconds")
        self.bin_s = bin_s
        self._over: dict[float, Bin] = {}

    def bins(self, store: Store, start_s: float | None = None, end_s: float | None = None) -> tuple[Bin, ...]:
        """Return the bins that touch the span (the store's where none is given), the newest ``MOST_BINS`` of them."""
        if store.span is None:
            return ()
        first, last = store.span
        start = max(first, first if start_s is None else start_s)
        end = min(last, last if end_s is None else end_s)
        low, high = math.floor(start / self.bin_s), math.floor(end / self.bin_s)
        found = []
        for index in range(max(low, high - MOST_BINS + 1), high + 1):
            at = index * self.bin_s
            known = self._over.get(at)
            if known is None:
                known = _bin(store, at, at + self.bin_s)
                if last >= at + self.bin_s:
                    self._over[at] = known
            found.append(known)
        return tuple(found)


def account_over_time(
    store: Store, start_s: float | None = None, end_s: float | None = None, bin_s: float = 10.0
) -> tuple[Bin, ...]:
    """Return the first level of the account over time; who asks again and again keeps a ``Strip``."""
    return Strip(bin_s).bins(store, start_s, end_s)


def account_now(store: Store, facts: Facts = NO_FACTS, at_s: float | None = None) -> Account | None:
    """Return the account of the last ``NOW_S`` seconds before ``at_s`` (the newest sample), of one segment only."""
    if store.span is None:
        return None
    end = store.span[1] if at_s is None else min(at_s, store.span[1])
    segment = next((one for one in reversed(store.segments) if one.start_s <= end), store.segments[0])
    start = max(segment.start_s, end - NOW_S)
    return account(store, Segment("now", start, math.nextafter(end, math.inf), segment.tags), facts)


def _bin(store: Store, start_s: float, end_s: float) -> Bin:
    held = admission(Samples(store, Segment("bin", start_s, math.nextafter(end_s, math.inf))))
    if isinstance(held, Missing):
        return Bin(start_s, end_s, None, "unknown")
    return Bin(start_s, end_s, held.shares, limit_of(held.shares, held.known).name)
