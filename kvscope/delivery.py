"""Telling somebody of what began and ended: a program, a web address, an Alertmanager. Each in a thread of its own.

Nothing from a target becomes a word of a command: a program gets the event as JSON on standard input and its names in
the environment. Addresses are on this machine unless it is said that others may hear of it.
"""

from __future__ import annotations

import datetime
import json
import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import urlsplit

from kvscope.errors import KvscopeError, SourceError, UsageError
from kvscope.sources.fetch import fetch, is_loopback

TIMEOUT_S = 30.0
RESEND_S = 60.0
"""How often an Alertmanager is told what still holds; it forgets what nobody repeats."""
EXPIRES_S = 4 * RESEND_S
MOST_WAITING = 1000
_FIRST_PAUSE_S, _LONGEST_PAUSE_S, _GIVES_UP_S = 1.0, 60.0, 900.0
Told = Mapping[str, Any]
"""An event as JSON: ``event`` (began, ended, changed), ``t_s``, ``target``, ``id``, ``title``, ``verdict``, ``says``"""


class Channel(Protocol):
    """One way to tell. ``send`` raises SourceError where it did not come through; it is then tried again."""

    name: str

    def send(self, event: Told) -> None: ...

    def tick(self) -> None:
        """Do what is to be done now and then; called about once a second."""


def checked_url(text: str, option: str, *, remote: bool) -> str:
    """Return an http(s) address on this machine; of another one only with ``remote``. UsageError."""
    try:
        parts = urlsplit(text)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError as error:
        raise UsageError(f"{option} {text}: not an address ({error})") from error
    if parts.scheme not in ("http", "https") or not host or parts.username is not None:
        raise UsageError(f"{option} {text}: expected http://HOST:PORT/… without a password in it")
    if not remote and not is_loopback(host):
        raise UsageError(f"{option} {text}: another machine; --allow-remote lets it hear of findings")
    return text


class Program:
    """Runs an argument vector, never a shell, once an event."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.name, self._arguments = arguments[0], list(arguments)

    def send(self, event: Told) -> None:
        words = {f"KVSCOPE_{key.upper()}": str(event[key]) for key in ("event", "target", "id", "verdict", "title")}
        words = {key: value.replace("\0", "") for key, value in words.items()}
        try:
            done = subprocess.run(
                self._arguments,
                input=json.dumps(event).encode(),
                env={**os.environ, **words},
                stdout=subprocess.DEVNULL,
                timeout=TIMEOUT_S,
                check=False,
            )
        except FileNotFoundError as error:
            raise UsageError(f"--exec {self.name}: no such program") from error
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SourceError(f"--exec {self.name}: {error}") from error
        if done.returncode:
            raise UsageError(f"--exec {self.name}: ended with {done.returncode}; it is not run again for this event")

    def tick(self) -> None:
        """Nothing is repeated."""


class Webhook:
    """Posts each event as a JSON object. The path of such an address is often a secret, so it is not shown."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        parts = urlsplit(url)
        self.name, self._url, self._headers = f"{parts.scheme}://{parts.netloc}/…", url, headers

    def send(self, event: Told) -> None:
        try:
            _post(self._url, event, self._headers)
        except SourceError as error:
            raise SourceError(str(error).replace(self._url.partition("?")[0], self.name)) from None

    def tick(self) -> None:
        """Nothing is repeated."""


class Alertmanager:
    """Posts alerts to an Alertmanager's v2 API, and again while they hold; what nobody repeats ends there by itself."""

    def __init__(
        self, url: str, headers: Mapping[str, str], clock: Callable[[], float] = time.time, labels: Told | None = None
    ) -> None:
        self.name = url
        self._url, self._headers = f"{url.rstrip('/')}/api/v2/alerts", headers
        self._clock, self._labels = clock, dict(labels or {})
        self._active: dict[tuple[str, str], Told] = {}
        self._sent_s = clock()

    def send(self, event: Told) -> None:
        key = (event["target"], event["id"])
        if event["event"] == "ended":
            _post(self._url, [self._alert(event, event["t_s"])], self._headers)
            self._active.pop(key, None)
            return
        self._active[key] = event
        _post(self._url, [self._alert(event, self._clock() + EXPIRES_S)], self._headers)

    def tick(self) -> None:
        now = self._clock()
        if self._active and now - self._sent_s >= RESEND_S:
            self._sent_s = now
            _post(self._url, [self._alert(one, now + EXPIRES_S) for one in self._active.values()], self._headers)

    def _alert(self, event: Told, ends_s: float) -> Told:
        """An alert; its labels are its name, so that nothing that changes while it lasts is among them."""
        labels = {"alertname": event["id"], "instance": event["target"], "source": "kvscope", **self._labels}
        fix = (event.get("finding") or {}).get("fix") or []
        notes = {"summary": event["title"], "description": event["says"], "verdict": event["verdict"]}
        notes |= {"fix": fix[0]} if fix else {}
        notes |= {"recording": event["recording"]} if event.get("recording") else {}
        return {
            "labels": labels,
            "annotations": notes,
            "startsAt": _rfc3339(event["began_s"]),
            "endsAt": _rfc3339(ends_s),
        }


def _post(url: str, body: Any, headers: Mapping[str, str]) -> None:
    fetch(url, TIMEOUT_S, form=json.dumps(body).encode(), headers={**headers, "Content-Type": "application/json"})


def _rfc3339(t: float) -> str:
    return datetime.datetime.fromtimestamp(t, datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Courier:
    """Brings events to one channel from a thread of its own, in order; what does not come through is tried again.

    What cannot be delivered within 15 minutes is given up, and ``say`` told.
    """

    def __init__(
        self,
        channel: Channel,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        pause_s: float = _FIRST_PAUSE_S,
    ) -> None:
        self._channel, self._say, self._clock, self._pause_s = channel, say, clock, pause_s
        self._waiting: queue.Queue[Told] = queue.Queue(MOST_WAITING)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kvscope-courier", daemon=True)
        self._thread.start()

    def send(self, event: Told) -> None:
        """Take an event; with a thousand undelivered ones it is dropped, and said so."""
        try:
            self._waiting.put_nowait(event)
        except queue.Full:
            self._say(f"{self._channel.name}: not told: {event['event']} {event['id']}")

    def close(self, wait_s: float = 5.0) -> None:
        """Deliver what waits, for ``wait_s`` at most."""
        self._ending.set()
        self._thread.join(wait_s)

    def _run(self) -> None:
        while not (self._ending.is_set() and self._waiting.empty()):
            try:
                event = self._waiting.get(timeout=1.0)
            except queue.Empty:
                self._tick()
                continue
            self._deliver(event)

    def _tick(self) -> None:
        try:
            self._channel.tick()
        except KvscopeError as error:
            self._say(str(error))

    def _deliver(self, event: Told) -> None:
        began, pause = self._clock(), self._pause_s
        while True:
            try:
                self._channel.send(event)
                return
            except SourceError as error:
                if self._ending.is_set() or self._clock() - began > _GIVES_UP_S:
                    self._say(f"given up: {error}")
                    return
                self._say(f"{error}; tried again in {pause:.0f} s")
            except KvscopeError as error:
                self._say(str(error))
                return
            self._ending.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
