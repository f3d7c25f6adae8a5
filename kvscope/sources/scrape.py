"""A running engine's metrics page, scraped at every poll."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from urllib.parse import urlsplit, urlunsplit

from kvscope.errors import SourceError, UsageError
from kvscope.sources._pagelog import PageLog
from kvscope.sources._reader import reader_for
from kvscope.sources.access import without_query
from kvscope.sources.clock import STEADY
from kvscope.sources.fetch import FetchError, fetch
from kvscope.sources.flags import flags_of, local_pid
from kvscope.sources.mapping import HasSide, Role
from kvscope.sources.settings import DOCUMENTS, flags_wanted, of_document
from kvscope.sources.source import Description, Poll
from probes import border

TIMEOUT_S = 3.0
FIRST_TIMEOUT_S = 10.0
"""For the first scrape, whose failure is final: a server in the middle of a long prefill answers late."""

_HOST_PORT = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]+):\d{1,5}(/.*)?")

Fetch = Callable[[str, float], str]


def is_url(text: str) -> bool:
    """Whether a target is meant as an address: ``http://…``, ``host:port`` or ``host:port/path``."""
    return "://" in text or _HOST_PORT.fullmatch(text) is not None


def page_url(text: str) -> str:
    """Return the full address of the metrics page: scheme and ``/metrics`` are added where left out. UsageError."""
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        port_ok = parts.port is None or parts.port > 0
    except ValueError as error:
        raise UsageError(f"{text}: not an address ({error}); expected http://host:port/metrics") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_ok:
        raise UsageError(f"{text}: not an address kvscope can scrape; expected http://host:port/metrics")
    if parts.username is not None:
        raise UsageError(
            f"{parts.hostname}: an address with a password in it is not taken; leave out user and password"
        )
    path = parts.path if parts.path not in ("", "/") else "/metrics"
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


class ScrapeSource:
    """Polls one page. The first scrape happens here: an unreachable target or another program's page is an error now.

    Later failures are gaps: told once, over when the page answers again. ``alone``: refuse a machine's exporter.
    """

    def __init__(
        self,
        address: str,
        *,
        timeout_s: float = TIMEOUT_S,
        first_timeout_s: float | None = None,
        wall: Callable[[], float] = STEADY.now,
        get: Fetch = fetch,
        pid_of: Callable[[str], int | None] = local_pid,
        flags: Callable[[int, Collection[str]], dict[str, str]] = flags_of,
        alone: bool = True,
        reading: AbstractContextManager[object] | None = None,
    ) -> None:
        """``reading`` is entered while a page is made sense of: many threads that do so at once hinder each other."""
        self.url = page_url(address)
        self._reading = reading or nullcontext()
        self._timeout_s = timeout_s
        self._wall = wall
        self._get = get
        self._pid_of = pid_of
        self._flags = flags
        self.pid: int | None = None
        self._told_side = False
        self._sideless = False
        text = get(self.url, first_timeout_s or timeout_s)
        self._last_t = wall()
        with self._reading:
            self._log = PageLog(reader_for(text, without_query(self.url), alone=alone))
        self._look_beside()
        side = self._side()
        with self._reading:
            self._log.page(text, self._last_t, side)
        self._fresh = True

    @property
    def role(self) -> Role:
        """What wrote the page: an engine, a router, a KV store, or a machine's exporter."""
        return self._log.reader.engine.ROLE

    def describe(self) -> Description:
        tags = dict(self._log.reader.tags)
        kind = self._log.reader.engine.ENGINE
        heard_s = self._log.heard_s or None
        return Description(
            kind,
            without_query(self.url),
            tags["engine"],
            tags.get("version", ""),
            tags,
            alive=self._log.answered,
            heard_s=heard_s,
        )

    def poll(self) -> Poll:
        if self._fresh:
            self._fresh = False
            return self._log.take()
        try:
            text = self._get(self.url, self._timeout_s)
        except FetchError as error:
            self._log.failure(self._now(), str(error).removeprefix(f"{without_query(self.url)}: "))
        else:
            if not self._log.answered:
                self._look_beside()
            side = self._side()
            with self._reading:
                self._log.page(text, self._now(), side)
            if self._log.exchanged:
                self._log.exchanged = False
                self._look_beside()
        if told := STEADY.told():
            self._log.notice(told)
        return self._log.take()

    def close(self) -> None:
        """Nothing is held open between polls."""

    def _now(self) -> float:
        # A wall clock set back must not send samples back: the store drops what is older than its newest.
        self._last_t = max(self._last_t, self._wall())
        return self._last_t

    def _side(self) -> dict[str, float]:
        """Return what the engine says in a JSON document beside its page, where it has one and it is turned on."""
        engine = self._log.reader.engine
        if not isinstance(engine, HasSide) or self._sideless:
            return {}
        try:
            text = self._get(self._beside(engine.SIDE_PATH), self._timeout_s)
            found = engine.read_side(border.document(text, engine.SIDE_PATH))
        except (SourceError, ValueError):
            found = {}
        # Where no flag would bring it, it is not asked for again until another engine answers.
        self._sideless = not found and not engine.SIDE_FLAG
        if not found and engine.SIDE_FLAG and not self._told_side:
            self._told_side = True
            self._log.notice(
                f"{engine.SIDE_PATH} does not answer (start the server with {engine.SIDE_FLAG}): the pool is unknown"
            )
        return found

    def _beside(self, path: str) -> str:
        parts = urlsplit(self.url)
        place, _, query = path.partition("?")
        return urlunsplit((parts.scheme, parts.netloc, place, query, ""))

    def _look_beside(self) -> None:
        """Learn what the page does not say, now and again when a silent engine answers: it may be another one."""
        self._sideless = False
        self._ask_version()
        self.pid = self._pid_of(self.url)
        reader = self._log.reader
        engine = reader.engine
        if self.pid is not None:
            found = self._flags(self.pid, {*engine.FLAGS, *flags_wanted(engine.ENGINE)})
            reader.flags = {name: value for name, value in found.items() if name in engine.FLAGS}
            for name, value in found.items():
                reader.settings.read(name, value, "command line")
        self._ask_settings()

    def _ask_settings(self) -> None:
        """Take an engine's own account of its arguments where it gives one; most servers do not, and say nothing."""
        for path in DOCUMENTS.get(self._log.reader.engine.ENGINE, ()):
            try:
                found = border.document(self._get(self._beside(path), self._timeout_s), path)
            except (SourceError, ValueError):
                continue
            if of_document(self._log.reader.settings, found):
                return

    def _ask_version(self) -> None:
        """Ask the engine for its version where it has a place for that."""
        path = self._log.reader.engine.VERSION_PATH
        if not path:
            return
        try:
            found = border.document(self._get(self._beside(path), self._timeout_s), path)
            version = border.text(border.mapping(found, path).get("version"), "version", 64)
        except (SourceError, ValueError):
            return
        self._log.reader.tags["version"] = version
