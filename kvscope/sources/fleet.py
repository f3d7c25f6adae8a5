"""Several engines' pages as one source: ``host1:8000,host2:8000``, polled together, told apart by ``replica``."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import urlsplit

from kvscope.errors import SourceError, UsageError
from kvscope.sources._base import Description, Poll
from kvscope.sources._fetch import FetchError, fetch
from kvscope.sources._replicas import Labeller, describe
from kvscope.sources._scrape import TIMEOUT_S, Fetch, ScrapeSource, is_url, page_url
from probes.sample import Sample

_MOST = 1000
_THREADS = 16


@dataclass(slots=True)
class _Member:
    url: str
    label: Labeller
    source: ScrapeSource | None = None
    silent: str = ""
    """Why it never answered; empty once it did."""


def is_fleet(text: str) -> bool:
    """Whether a target is a list of addresses with commas between them."""
    parts = addresses(text)
    return len(parts) > 1 and all(is_url(part) for part in parts)


def addresses(text: str) -> list[str]:
    """Return the addresses of a comma-separated list."""
    return [part.strip() for part in text.split(",") if part.strip()]


class FleetSource:
    """Polls every member at the same moment. One that does not answer is told and asked again; all silent is an error.

    All samples of a poll carry one time, so that what replicas said together adds up.
    """

    def __init__(
        self,
        targets: Sequence[str],
        *,
        timeout_s: float = TIMEOUT_S,
        wall: Callable[[], float] = time.time,
        get: Fetch = fetch,
    ) -> None:
        urls = list(dict.fromkeys(page_url(target) for target in targets))
        if len(urls) > _MOST:
            raise UsageError(f"{len(urls)} addresses; at most {_MOST} are polled one by one: give a Prometheus instead")
        self._wall, self._get, self._timeout_s = wall, get, timeout_s
        self._members = [_Member(url, Labeller(_name(url, urls))) for url in urls]
        self._pool = ThreadPoolExecutor(min(_THREADS, len(urls)), thread_name_prefix="kvscope-fleet")
        self._t = wall()
        first = [line for lines in self._pool.map(self._open, self._members) for line in lines]
        if not any(member.source for member in self._members):
            self._pool.shutdown()
            raise SourceError("; ".join(member.silent for member in self._members[:3]))
        self._notices = first
        self._fresh = True

    def describe(self) -> Description:
        target = ",".join(member.label.replica for member in self._members)
        engines = [one for one in self._members if one.source is None or one.source.role != "machine"]
        seen = {one.label.replica: one.source.describe() for one in engines if one.source}
        answered = sum(description.alive for description in seen.values())
        return describe("fleet", target, {name: one.tags for name, one in seen.items()}, answered, len(engines))

    def poll(self) -> Poll:
        self._t = max(self._t, self._wall()) if not self._fresh else self._t
        self._fresh = False
        notices, self._notices = list(self._notices), []
        samples: list[Sample] = []
        for member, (found, said) in zip(self._members, self._pool.map(self._ask, self._members), strict=True):
            samples += member.label(found)
            notices += [f"{member.label.replica}: {line}" for line in said]
        return Poll(samples, notices=tuple(notices))

    def close(self) -> None:
        self._pool.shutdown()

    def _open(self, member: _Member) -> list[str]:
        """Try to open a member; return what a person should read about it, once."""
        try:
            member.source = ScrapeSource(
                member.url, timeout_s=self._timeout_s, wall=lambda: self._t, get=self._get, alone=False
            )
        except SourceError as error:
            told, member.silent = member.silent, str(error)
            return [] if told else [f"{member.label.replica}: {str(error).removeprefix(f'{member.url}: ')}"]
        member.silent = ""
        return []

    def _ask(self, member: _Member) -> tuple[list[Sample], tuple[str, ...]]:
        if member.source is None:
            self._open(member)
            if member.source is None:
                return [], ()
        # A restart of one replica does not cut the fleet's stream: its counters are followed on their own.
        try:
            found = member.source.poll()
        except FetchError as error:
            return [], (str(error),)
        return found.samples, found.notices


def _name(url: str, urls: Sequence[str]) -> str:
    """Return what a person calls a member: host and port, with the path where two differ in nothing else."""
    parts = urlsplit(url)
    twins = [other for other in urls if urlsplit(other).netloc == parts.netloc]
    return parts.netloc if len(twins) == 1 else parts.netloc + parts.path
