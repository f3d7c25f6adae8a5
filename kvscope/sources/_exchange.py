"""One HTTP exchange with one deadline: what is read, from the status line to the last trailer, is read before it.

The socket's own time limit is for one read, so that a byte now and then keeps it waiting for ever. Here each read gets
what is left of the whole.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable
from functools import partial
from typing import Any


class NotWhole(TimeoutError):
    """The time is over, and something is still to come."""


class Deadline:
    """When an exchange must be over."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until = clock() + seconds

    def left_s(self) -> float:
        """Return the seconds that are left. NotWhole when there are none."""
        left = self._until - self._clock()
        if left <= 0:
            raise NotWhole
        return left


class Plain(urllib.request.HTTPHandler):
    """Opens ``http:`` under a deadline."""

    def __init__(self, until: Deadline) -> None:
        super().__init__()
        self._until = until

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_Connection, until=self._until), req)


class Secure(urllib.request.HTTPSHandler):
    """Opens ``https:`` under a deadline."""

    def __init__(self, until: Deadline, tls: ssl.SSLContext | None) -> None:
        super().__init__(context=tls)
        self._until, self._tls = until, tls

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_SecureConnection, until=self._until, context=self._tls), req)


class _Connection(http.client.HTTPConnection):
    def __init__(self, host: str, *, until: Deadline, **options: Any) -> None:
        super().__init__(host, **options)
        self._until = until

    def connect(self) -> None:
        _resolved(self.host, self.port, self._until)
        self.timeout = self._until.left_s()
        super().connect()
        self.sock = _Watched(self.sock, self._until)


class _SecureConnection(http.client.HTTPSConnection):
    def __init__(self, host: str, *, until: Deadline, **options: Any) -> None:
        super().__init__(host, **options)
        self._until = until

    def connect(self) -> None:
        _resolved(self.host, self.port, self._until)
        self.timeout = self._until.left_s()
        super().connect()
        self.sock = _Watched(self.sock, self._until)


class _Watched:
    """A connected socket as ``http.client`` uses one, whose reads and writes end with the exchange."""

    def __init__(self, sock: socket.socket, until: Deadline) -> None:
        self._sock, self._until = sock, until

    def makefile(self, mode: str = "rb", *_: Any, **__: Any) -> io.BufferedReader:
        return io.BufferedReader(_Reading(self._sock, self._sock.makefile("rb", buffering=0), self._until))

    def sendall(self, data: Any) -> None:
        self._sock.settimeout(self._until.left_s())
        self._sock.sendall(data)

    def settimeout(self, _: float | None) -> None:
        """The deadline stands."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


class _Reading(io.RawIOBase):
    """Reads a socket; each read may take what is left of the exchange's time."""

    def __init__(self, sock: socket.socket, raw: Any, until: Deadline) -> None:
        self._sock, self._raw, self._until = sock, raw, until

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(self._until.left_s())
        found: int | None = self._raw.readinto(buffer)
        return found

    def close(self) -> None:
        self._raw.close()
        super().close()


def _resolved(host: str, port: int, until: Deadline) -> None:
    """Look a name up, in a thread that may be left behind: the system's lookup knows no deadline and no Ctrl-C."""
    if _is_address(host):
        return
    failed: list[OSError] = []

    def look() -> None:
        try:
            socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            failed.append(error if isinstance(error, OSError) else OSError(0, "no name that a host can have"))

    thread = threading.Thread(target=look, name="kvscope-lookup", daemon=True)
    thread.start()
    thread.join(until.left_s())
    if thread.is_alive():
        raise TimeoutError("the name was not looked up in time")
    if failed:
        raise failed[0]


def _is_address(host: str) -> bool:
    if host == "localhost":
        return True
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except (OSError, ValueError):
            continue
        return True
    return False
