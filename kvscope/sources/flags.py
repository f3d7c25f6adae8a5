"""Settings that an engine keeps off its page but shows on its command line, where it runs on this machine."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Collection, Sequence
from urllib.parse import urlsplit

import psutil

from kvscope.sources.fetch import is_loopback
from kvscope.sources.find import listening_ports

_ANCESTORS = 3
"""A server with several front-end processes listens in children of the process that was given the flags."""


def local_pid(url: str) -> int | None:
    """Return the process that listens behind an address of this machine, or None when that cannot be seen."""
    parts = urlsplit(url)
    # A list of addresses begins like one, and has no port.
    with contextlib.suppress(ValueError):
        return (_ports.pid_of(parts.port or 80) or None) if is_loopback(parts.hostname or "") else None
    return None


class _Ports:
    """What listens here, looked at once for all who ask within a while: with many connections a look takes long."""

    FRESH_S = 5.0

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[int, int] = {}
        self._until_s = 0.0

    def pid_of(self, port: int) -> int:
        """Return who listens on a port; 0 where nobody is seen to."""
        with self._lock:
            if port not in self._found or time.monotonic() >= self._until_s:
                self._found = listening_ports()
                self._until_s = time.monotonic() + self.FRESH_S
            return self._found.get(port, 0)


_ports = _Ports()


def flags_of(pid: int, wanted: Collection[str]) -> dict[str, str]:
    """Return the wanted flags (names without dashes) on the command line of a process or the nearest ancestor."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for one in [process, *process.parents()[:_ANCESTORS]]:
            found = parse_flags(one.cmdline(), wanted)
            if found:
                return found
    return {}


def parse_flags(words: Sequence[str], wanted: Collection[str]) -> dict[str, str]:
    """Read ``--name value``, ``--name=value``, ``-np 4`` and bare switches; only the wanted names are kept.

    Nothing else is: a key may stand beside. A bare switch has an empty value.
    """
    found = {}
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        name = name.lstrip("-").replace("_", "-")
        if not word.startswith("-") or name not in wanted:
            continue
        following = words[index + 1] if index + 1 < len(words) else "-"
        found[name] = value if equals else "" if following.startswith("-") and not _is_number(following) else following
    return found


def _is_number(word: str) -> bool:
    return word.removeprefix("-").replace(".", "", 1).isdecimal()
