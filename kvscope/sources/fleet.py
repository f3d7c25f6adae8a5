"""Several engines' pages as one source: ``host1:8000,host2:8000``, polled together, told apart by ``replica``."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit

from kvscope.errors import SourceError, UsageError
from kvscope.sources._replicas import Labeller, describe
from kvscope.sources.access import without_query
from kvscope.sources.clock import STEADY
from kvscope.sources.fetch import fetch
from kvscope.sources.scrape import TIMEOUT_S, Fetch, ScrapeSource, is_url, page_url
from kvscope.sources.source import Description, Poll
from kvscope.sources.workers import Results, Workers
from probes.sample import Sample

_MOST = 1000
_THREADS = 64
_SLOW_THREADS = 32
ROUND_S = 1.0
"""Longest wait of a poll: who answers later is heard by a later one."""
_GRACE_S = 0.05
"""For those that were silent before: one that is there again answers as fast as the others."""
_FIRST_S = 1.5
_SLOWEST_S = 30.0
"""How seldom a member is asked that did not answer again and again."""


@dataclass(slots=True)
class _Member:
    url: str
    label: Labeller
    source: ScrapeSource | None = None
    silent: str = ""
    """Why it does not answer; empty while it does."""
    asked: bool = False
    due_s: float = 0.0
    pause_s: float = 0.0
    left: bool = False
    """No member any more: an answer that still comes is not heard."""


Answer = tuple[_Member, list[Sample], tuple[str, ...]]


def is_fleet(text: str) -> bool:
    """Whether a target is a list of addresses with commas between them."""
    parts = addresses(text)
    return len(parts) > 1 and all(is_url(part) for part in parts)


def addresses(text: str) -> list[str]:
    """Return the addresses of a comma-separated list."""
    return [part.strip() for part in text.split(",") if part.strip()]


class FleetSource:
    """Polls every member at its own pace: one that hangs or trickles is asked apart, ever more seldom, and holds up
    nobody. All silent at the start is an error.

    Samples that came in one poll carry one time, so that what replicas said together adds up. ``targets`` may say what
    a person calls each address.
    """

    def __init__(
        self,
        targets: Sequence[str] | Mapping[str, str],
        *,
        timeout_s: float = TIMEOUT_S,
        wall: Callable[[], float] = STEADY.now,
        get: Fetch = fetch,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        urls = _urls(targets)
        self._wall, self._get, self._timeout_s, self._clock = wall, get, timeout_s, clock
        self._members = [_Member(url, Labeller(name)) for url, name in urls.items()]
        self._fast = Workers(min(_THREADS, len(urls)), "kvscope-fleet")
        self._slow = Workers(min(_SLOW_THREADS, len(urls)), "kvscope-fleet-slow")
        self._results: Results[Answer] = Results()
        self._reading = threading.Lock()
        self._t = wall()
        self._waiting = self._first_round()
        if not any(member.source for member in self._members):
            self.close()
            raise SourceError(
                "; ".join(member.silent or f"{without_query(member.url)}: no answer" for member in self._members[:3])
            )

    def describe(self) -> Description:
        target = ",".join(member.label.replica for member in self._members)
        engines = [one for one in self._members if one.source is None or one.source.role != "machine"]
        seen = {one.label.replica: one.source.describe() for one in engines if one.source}
        answered = sum(not one.silent for one in engines if one.source)
        return describe("fleet", target, {name: one.tags for name, one in seen.items()}, answered, len(engines))

    def poll(self) -> Poll:
        waiting, self._waiting = self._waiting, []
        if not waiting:
            self._t = max(self._t, self._wall())
            fast, slow = self._ask_all()
            waiting = self._results.take(fast, ROUND_S)
            if slow:
                waiting += self._results.take(slow, _GRACE_S)
        samples: list[Sample] = []
        notices: list[str] = []
        for member, found, said in waiting:
            if member.left:
                continue
            samples += member.label(found)
            notices += [f"{member.label.replica}: {line}" for line in said]
        samples.sort(key=lambda sample: sample.t)
        return Poll(samples, notices=tuple(notices))

    def close(self) -> None:
        self._fast.close()
        self._slow.close()

    def become(self, targets: Mapping[str, str]) -> None:
        """Have these members from now on; who was one already goes on as before."""
        known = {member.url: member for member in self._members}
        wanted = _urls(targets)
        self._members = [known.get(url) or _Member(url, Labeller(name)) for url, name in wanted.items()]
        for url in known.keys() - wanted.keys():
            known[url].left = True

    def _first_round(self) -> list[Answer]:
        """Ask everybody; wait for all, or as long as a round when somebody answered, or until nobody can any more."""
        found: list[Answer] = []
        left, began = self._ask_all()[0], self._clock()
        while left > 0:
            passed = self._clock() - began
            answered = any(member.source for member in self._members)
            if passed > (_FIRST_S if answered else 2 * self._timeout_s + 1.0):
                break
            came = self._results.take(left, 0.1)
            found += came
            left -= len(came)
        return found

    def _ask_all(self) -> tuple[int, int]:
        """Start asking everybody who is due; return of how many an answer is expected, and of how many it is hoped."""
        now, expected, hoped = self._clock(), 0, 0
        for member in self._members:
            if member.asked or now < member.due_s:
                continue
            member.asked = True
            if member.silent:
                self._slow.start(partial(self._ask, member))
                hoped += 1
            else:
                self._fast.start(partial(self._ask, member))
                expected += 1
        return expected, hoped

    def _ask(self, member: _Member) -> None:
        """Ask one member and put what it said where a poll finds it. Runs in a thread of its own."""
        samples: list[Sample] = []
        said: tuple[str, ...] = ()
        try:
            if member.source is None:
                member.source = ScrapeSource(
                    member.url,
                    timeout_s=self._timeout_s,
                    wall=lambda: self._t,
                    get=self._get,
                    alone=False,
                    reading=self._reading,
                )
            # A restart of one replica does not cut the fleet's stream: its counters are followed on their own.
            poll = member.source.poll()
            samples, said = poll.samples, poll.notices
            member.silent = "" if member.source.describe().alive else "it does not answer"
        except SourceError as error:
            said = () if member.silent else (str(error).removeprefix(f"{without_query(member.url)}: "),)
            member.silent = str(error)
        except Exception as error:
            # Whatever one member says must not end the others.
            said = () if member.silent else (f"what it says cannot be read ({type(error).__name__})",)
            member.silent = said[0] if said else member.silent
        member.due_s = self._clock() + (member.pause_s if member.silent else 0.0)
        member.pause_s = min(_SLOWEST_S, 2 * member.pause_s or ROUND_S) if member.silent else 0.0
        member.asked = False
        self._results.put((member, samples, said))


def _urls(targets: Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    """Return page's address → what a person calls it. UsageError for more than can be polled one by one."""
    called = targets if isinstance(targets, Mapping) else dict.fromkeys(targets, "")
    urls = {page_url(target): name for target, name in called.items()}
    if len(urls) > _MOST:
        raise UsageError(f"{len(urls)} addresses; at most {_MOST} are polled one by one: give a Prometheus instead")
    shared = Counter(urlsplit(url).netloc for url in urls)
    return {url: name or _name(url, shared) for url, name in urls.items()}


def _name(url: str, shared: Mapping[str, int]) -> str:
    """Return what a person calls a member: host and port, with the path where two differ in nothing else."""
    parts = urlsplit(url)
    return parts.netloc if shared[parts.netloc] == 1 else parts.netloc + parts.path
