"""Run laboratory cases: each scenario as it is, once more the same, and with every limit lifted alone.

    python -m tests.lab.run --engine llamacpp --seeds 0-9 --out DIR [--seconds 20] [--workers 1] [--port 18500]

What is kept of a run: ``pages.jsonl.gz`` (one page a second), ``server.log.gz``, ``client.json``. A run that is there
is not made again, so that a broken off laboratory goes on where it stopped. On a busy machine fewer workers than cores.
"""

from __future__ import annotations

import argparse
import gzip
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

from tests.lab import engines
from tests.lab.load import Clients, as_rows
from tests.lab.scenario import Case, Load, Settings, draw

WARM_S = 3.0
"""Of load before the first page that counts: prompts that all share are then cached."""


def plan(case: Case) -> dict[str, tuple[Settings, Load]]:
    """Return the runs of a case by name: base, again (A/A) and the lifts."""
    return {"base": (case.settings, case.load), "again": (case.settings, case.load), **case.lifts}


def run_case(case: Case, out: Path, seconds: float, port: int, core: str = "") -> list[str]:
    """Make the runs of a case that are not there yet; return what went wrong."""
    folder, bad = out / case.name, []
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "case.json").write_text(json.dumps(case.as_json(), indent=1))
    for name, (settings, load) in plan(case).items():
        target = folder / name
        if (target / "client.json").exists():
            continue
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        try:
            _run(case, settings, load, target, seconds, port, core)
        except (RuntimeError, OSError) as error:
            bad.append(f"{case.name}/{name}: {error}")
    return bad


def _run(case: Case, settings: Settings, load: Load, folder: Path, seconds: float, port: int, core: str) -> None:
    server = engines.start(case.engine, settings, load, port, folder, core)
    try:
        clients, rows = Clients(server, load, case.seed), []
        sender = threading.Thread(target=lambda: rows.extend(clients.run(WARM_S + seconds)), daemon=True)
        sender.start()
        time.sleep(WARM_S)
        _scrape(server, folder / "pages.jsonl.gz", seconds)
        sender.join(30)
    finally:
        server.stop()
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
    }
    about["received"] = [clients.received.get(k, 0) for k in range(int(WARM_S + seconds))]
    (folder / "client.json").write_text(json.dumps({**about, "rows": as_rows(rows)}))


def _scrape(server: engines.Server, path: Path, seconds: float) -> None:
    until = time.monotonic() + seconds
    with gzip.open(path, "wt") as file:
        while time.monotonic() < until:
            begun, row = time.monotonic(), {"t": round(time.time(), 3), "status": 200}
            try:
                row["text"] = server.page()
            except OSError as error:
                row |= {"status": None, "error": type(error).__name__}
            file.write(json.dumps(row) + "\n")
            time.sleep(max(0.0, 1.0 - (time.monotonic() - begun)))


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
    cases: multiprocessing.Queue[int] = fork.Queue()
    for seed in seeds_of(args.seeds):
        cases.put(seed)
    failed = fork.Value("i", 0)

    def work(number: int) -> None:
        core = str(args.pin + number) if args.pin >= 0 else ""
        for seed in _until(cases, time.monotonic() + 60 * args.minutes):
            case = draw(args.engine, seed)
            bad = run_case(case, args.out, args.seconds, args.port + 10 * number, core)
            print(f"{case.name} done", *bad, sep="\n  ", flush=True)
            with failed:
                failed.value += len(bad)

    workers = [fork.Process(target=work, args=(k,)) for k in range(args.workers)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return 1 if failed.value else 0


def _until(cases: multiprocessing.Queue[int], end: float) -> Iterator[int]:
    """Yield what is queued, as long as there is time."""
    while time.monotonic() < end:
        try:
            yield cases.get(timeout=1)
        except queue.Empty:
            return


if __name__ == "__main__":
    sys.exit(main())
