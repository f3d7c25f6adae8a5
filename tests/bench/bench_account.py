"""What the account costs a tick: the last seconds of a real server's page, accounted for anew after each scrape.

    python -m tests.bench.bench_account [FOLDER…]

Each tick adds one scrape and asks for the account of just now, as the dashboard and ``diagnose --watch`` do. Told are
medians and the 95th percentile by the clock, and in processor time of this thread, which other load does not touch.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import closing
from itertools import groupby
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from kvscope.account import Facts, account_now
from kvscope.devices import find
from kvscope.plan import geometry
from kvscope.sources import open_target
from kvscope.store import Store

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = sorted((ROOT / "samples" / "captures").glob("*/pages.jsonl.gz"))
FACTS = Facts(model=geometry(ROOT / "samples" / "configs" / "qwen3-8b.json"), device=find("H200"))
ROUNDS = 3


def ticks(path: Path) -> list[tuple[float, float]]:
    """Return (seconds by the clock, seconds of processor time) of every tick of a capture."""
    with closing(open_target(str(path))) as source:
        samples = source.poll().samples
    found = []
    for _ in range(ROUNDS):
        store = Store()
        for _, scrape in groupby(samples, key=lambda one: one.t):
            store.add(scrape)
            begun, spent = time.perf_counter(), time.thread_time()
            account_now(store, FACTS)
            found.append((time.perf_counter() - begun, time.thread_time() - spent))
    return found


def summary(path: Path) -> dict[str, Any]:
    """Return a capture's figures in milliseconds."""
    wall, cpu = zip(*ticks(path), strict=True)
    return {
        "capture": path.parent.name,
        "ticks": len(wall),
        "wall_ms": round(1e3 * median(wall), 3),
        "wall_p95_ms": round(1e3 * quantiles(wall, n=20)[-1], 3),
        "cpu_ms": round(1e3 * median(cpu), 3),
        "cpu_p95_ms": round(1e3 * quantiles(cpu, n=20)[-1], 3),
    }


def main() -> None:
    """Print one JSON line a capture."""
    for path in [Path(one) / "pages.jsonl.gz" for one in sys.argv[1:]] or SHIPPED:
        print(json.dumps(summary(path)), flush=True)


if __name__ == "__main__":
    main()
