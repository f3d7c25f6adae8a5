"""Engines found on this machine: flight recorders, and ports whose page is a known engine's."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import psutil

from kvscope.errors import SourceError
from kvscope.sources import maps
from kvscope.sources._prometheus import series_names
from kvscope.sources.clock import clock_text
from kvscope.sources.fetch import fetch
from kvscope.sources.find import listening_ports
from kvscope.sources.workers import Results, Workers
from probes.border import printable
from probes.ring_reader import RingError, RingReader, find_rings
from probes.runtime import RuntimeDirError

COMMON_PORTS = (*range(8000, 8011), 8080, 30000)
TIMEOUT_S = 0.5
_THREADS = 64
_MOST_PORTS = 200


@dataclass(frozen=True, slots=True)
class Found:
    """One engine: ``target`` is what ``open_target`` takes, ``says`` tells in one line what it is."""

    target: str
    kind: str
    alive: bool
    says: str


def discover(*, timeout_s: float = TIMEOUT_S, get: Callable[[str, float], str] = fetch) -> list[Found]:
    """Return what there is to watch: living recorders first, then pages, then recorders of the dead."""
    rings = _rings()
    recorded = {ring.target for ring in rings if ring.alive}
    # An engine that has both is told once, by the richer of the two.
    ports = {port: pid for port, pid in _candidate_ports().items() if str(pid) not in recorded}
    pages = _pages(ports, timeout_s, get)
    return [ring for ring in rings if ring.alive] + pages + [ring for ring in rings if not ring.alive]


def _rings() -> list[Found]:
    found = []
    with contextlib.suppress(RuntimeDirError):
        for path in find_rings():
            try:
                reader = RingReader(path)
            except (RingError, OSError) as error:
                found.append(Found(str(path), "ring", False, f"flight recorder that cannot be read: {error}"))
                continue
            alive, closed, last = reader.is_alive(), reader.closed, reader.heartbeat_s
            header, pid = reader.header, reader.pid
            reader.close()
            known = [header[key] for key in ("engine", "version", "model", "device") if header.get(key)]
            what = " ".join(printable(one, 80) for one in known)
            state = "running" if alive else f"{'ended' if closed else 'died'}, last heard of at {clock_text(last)}"
            target = str(pid) if alive else str(path)
            found.append(Found(target, "ring", alive, f"{what or 'engine'}, pid {pid}, flight recorder, {state}"))
    return found


def _candidate_ports() -> dict[int, int]:
    """Return port → pid (0: unknown) of what may serve a page: what listens, else the ports engines use by default."""
    listening = listening_ports()
    if not listening:
        return dict.fromkeys(COMMON_PORTS, 0)
    # Common ports first, so that a machine with very many listeners still has those looked at.
    ordered = sorted(listening, key=lambda port: (port not in COMMON_PORTS, port))
    return {port: listening[port] for port in ordered[:_MOST_PORTS]}


def _pages(ports: dict[int, int], timeout_s: float, get: Callable[[str, float], str]) -> list[Found]:
    def look(port: int) -> Found | None:
        try:
            text = get(f"http://127.0.0.1:{port}/metrics", timeout_s)
        except SourceError:
            return None
        names = series_names(text)
        engine = maps.detect(names)
        if engine is None:
            return None
        pid = ports[port]
        who = f", pid {pid} ({_process_name(pid)})" if pid else ""
        return Found(f"127.0.0.1:{port}", engine.ENGINE, True, f"{engine.ENGINE} page, {len(names)} series names{who}")

    workers: Workers = Workers(_THREADS, "kvscope-discover")
    results: Results[tuple[int, Found | None]] = Results()

    def ask(port: int) -> None:
        found = None
        try:
            found = look(port)
        except Exception:
            # Something else listens there, whatever it says.
            found = None
        finally:
            results.put((port, found))

    for port in ports:
        workers.start(partial(ask, port))
    answers = dict(results.take(len(ports), 4 * timeout_s))
    workers.close()
    return [one for port in ports if (one := answers.get(port)) is not None]


def _process_name(pid: int) -> str:
    try:
        return psutil.Process(pid).name()
    except psutil.Error:
        return "?"
