"""Run laboratory cases: each scenario as it is, once more the same, and with every limit lifted alone.

    python -m tests.lab.run --engine llamacpp --seeds 0-9 --out DIR [--seconds 20] [--workers 1] [--port 18500]

What is kept of a run: ``pages.jsonl.gz`` (one page a second), ``server.log.gz``, ``events.jsonl.gz`` where the engine
publishes KV events, ``command.json``, ``client.json``. A run that is there is not made again, so that a broken off
laboratory goes on where it stopped. On a busy machine fewer workers than cores.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import json
import multiprocessing
import os
import queue
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kvscope.sources.kv_events import unpacked
from tests.lab import engines
from tests.lab.load import Clients, as_rows
from tests.lab.scenario import Case, Load, Settings, draw

WARM_S = 3.0
"""Of load before the first page that counts: prompts that all share are then cached."""


def plan(case: Case) -> dict[str, tuple[Settings, Load]]:
    """Return the runs of a case by name: base, again (A/A) and the lifts."""
    return {"base": (case.settings, case.load), "again": (case.settings, case.load), **case.lifts}


def run_one(case: Case, name: str, out: Path, seconds: float, port: int, core: str = "") -> str:
    """Make one run of a case unless it is there; return what went wrong."""
    folder = out / case.name / name
    if (folder / "client.json").exists():
        return ""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder.parent / "case.json").write_text(json.dumps(case.as_json(), indent=1))
    settings, load = plan(case)[name]
    try:
        _run(case, settings, load, folder, seconds, port, core)
    except (RuntimeError, OSError) as error:
        return f"{case.name}/{name}: {error}"
    return ""


def _run(case: Case, settings: Settings, load: Load, folder: Path, seconds: float, port: int, core: str) -> None:
    heard = (
        Events(port + engines.EVENTS, folder / "events.jsonl.gz") if engines.ENGINES[case.engine].publishes else None
    )
    server = engines.start(case.engine, settings, load, port, folder, core)
    try:
        clients, rows = Clients(server, load, case.seed), []
        sender = threading.Thread(target=lambda: rows.extend(clients.run(WARM_S + seconds)), daemon=True)
        sender.start()
        time.sleep(WARM_S)
        before = server.scheduled()
        _scrape(server, folder / "pages.jsonl.gz", seconds)
        ran_s, waited_s = (after - was for after, was in zip(server.scheduled(), before, strict=True))
        sender.join(30)
    finally:
        server.stop()
        if heard is not None:
            heard.close()
    (folder / "command.json").write_text(json.dumps(server.argvs))
    log = folder / "server.log"
    with log.open("rb") as plain, gzip.open(folder / "server.log.gz", "wb") as packed:
        shutil.copyfileobj(plain, packed)
    log.unlink()
    shutil.rmtree(folder / "kv", ignore_errors=True)
    (folder / "steps.npz").unlink(missing_ok=True)
    about: dict[str, object] = {
        "seconds": seconds,
        "warm_s": WARM_S,
        "started_s": round(server.started_s, 2),
        "busy": os.getloadavg()[0],
        "ran_s": round(ran_s, 2),
        "waited_s": round(waited_s, 2),
    }
    about["received"] = [clients.received.get(k, 0) for k in range(int(WARM_S + seconds))]
    (folder / "client.json").write_text(json.dumps({**about, "rows": as_rows(rows)}))


def _scrape(server: engines.Server, path: Path, seconds: float) -> None:
    until = time.monotonic() + seconds
    with gzip.open(path, "wt") as file:
        while time.monotonic() < until:
            begun, row = time.monotonic(), {"t": round(time.time(), 3), "status": 200}
            try:
                row |= {"text": server.page(), "side": server.side()}
            except OSError as error:
                row |= {"status": None, "error": type(error).__name__}
            file.write(json.dumps(row) + "\n")
            time.sleep(max(0.0, 1.0 - (time.monotonic() - begun)))


class Events:
    """Keeps the KV events that an engine publishes, as ``kvscope`` reads them; token ids are not kept."""

    def __init__(self, port: int, path: Path) -> None:
        zmq: Any = importlib.import_module("zmq")
        self._again, self._path = zmq.Again, path
        self._socket: Any = zmq.Context.instance().socket(zmq.SUB)
        self._socket.setsockopt(zmq.RCVHWM, 0)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.RCVTIMEO, 200)
        self._socket.setsockopt_string(zmq.SUBSCRIBE, "")
        self._socket.connect(f"tcp://127.0.0.1:{port}")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening; what came lies in the file."""
        self._stop.set()
        self._thread.join(10)

    def _listen(self) -> None:
        with gzip.open(self._path, "wt") as file:
            while not self._stop.is_set():
                try:
                    frames = self._socket.recv_multipart()
                except self._again:
                    continue
                batch = unpacked(frames[-1])
                if batch is None:
                    continue
                seq = int.from_bytes(frames[1], "big") if len(frames) == 3 and len(frames[1]) == 8 else None
                row = {"ts": batch[0], "seq": seq, "events": [_without_tokens(event) for event in batch[1]]}
                file.write(json.dumps(row) + "\n")
        self._socket.close()


def _without_tokens(event: Any) -> Any:
    """Return an event with its token ids left out; they stand third in a stored block's array."""
    if isinstance(event, dict):
        return {key: value for key, value in event.items() if key != "token_ids"}
    return [*event[:3], [], *event[4:]] if len(event) > 3 else event


def seeds_of(text: str) -> list[int]:
    """Read ``0-9,14``."""
    found: list[int] = []
    for part in text.split(","):
        low, _, high = part.partition("-")
        found += range(int(low), int(high or low) + 1)
    return found


def main() -> int:
    """Run the cases asked for, ``--workers`` at a time, until they are done or ``--minutes`` have passed."""
    asked = argparse.ArgumentParser(prog="python -m tests.lab.run")
    asked.add_argument("--engine", required=True, choices=sorted(engines.ENGINES))
    asked.add_argument("--seeds", required=True)
    asked.add_argument("--out", required=True, type=Path)
    asked.add_argument("--seconds", type=float, default=20.0)
    asked.add_argument("--workers", type=int, default=1)
    asked.add_argument("--port", type=int, default=18500)
    asked.add_argument("--minutes", type=float, default=1e9)
    asked.add_argument(
        "--pin", type=int, default=-1, help="each worker's engine has a core of its own, from this one on"
    )
    args = asked.parse_args()
    # Forked before any thread: the clients of one worker must not be timed by another's interpreter lock.
    fork = multiprocessing.get_context("fork")
    runs: multiprocessing.Queue[tuple[int, str]] = fork.Queue()
    for seed in seeds_of(args.seeds):
        for name in plan(draw(args.engine, seed)):
            runs.put((seed, name))
    failed = fork.Value("i", 0)

    def work(number: int) -> None:
        core = str(args.pin + number) if args.pin >= 0 else ""
        for seed, name in _until(runs, time.monotonic() + 60 * args.minutes):
            case = draw(args.engine, seed)
            bad = run_one(case, name, args.out, args.seconds, args.port + 10 * number, core)
            print(f"{case.name}/{name}", *([bad] if bad else []), flush=True)
            with failed:
                failed.value += bool(bad)

    workers = [fork.Process(target=work, args=(k,)) for k in range(args.workers)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return 1 if failed.value else 0


def _until(runs: multiprocessing.Queue[tuple[int, str]], end: float) -> Iterator[tuple[int, str]]:
    """Yield what is queued, as long as there is time."""
    while time.monotonic() < end:
        try:
            yield runs.get(timeout=1)
        except queue.Empty:
            return


if __name__ == "__main__":
    sys.exit(main())
