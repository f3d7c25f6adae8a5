"""Mutated logs, figures, results, event streams, requests and tables: no traceback, no hang, bounded memory.

    python -m tests.fuzz.mutated_evidence --count 100000 --seed 1

Each input is a few lines of a sample with bytes flipped, cut, doubled, or numbers replaced by extreme ones.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

from kvscope.errors import KvscopeError
from kvscope.sources import open_target

SAMPLES = Path(__file__).parents[2] / "samples"
KINDS = {
    "log": sorted(SAMPLES.glob("logs/**/*.log")),
    "figures": sorted(SAMPLES.glob("figures/*.yaml")),
    "result": sorted(path for path in SAMPLES.glob("results/*") if path.name != "README.md"),
    "events": sorted(SAMPLES.glob("events/*.msgpack")),
    "requests": sorted(SAMPLES.glob("requests/*.jsonl")),
    "page": sorted(SAMPLES.glob("scrapes/router-*.prom")),
}
_EXTREME = (
    b"1e999",
    b"-1",
    b"NaN",
    b"9" * 400,
    b"0",
    b"1e308",
    b"\x00",
    b"\xff\xfe",
    b"{" * 300,
    b"[" * 300,
    b"%s",
    b"\x1b[31m",
)
_SLOW_S = 5.0


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Return a few lines of a sample, changed in one to six ways."""
    lines = data.split(b"\n")
    start = rng.randrange(len(lines))
    found = bytearray(
        b"\n".join(lines[start : start + rng.randint(1, 12)])[:20_000] if rng.random() < 0.9 else data[:20_000]
    )
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(found) + 1)
        how = rng.randrange(6)
        if how == 0 and found:
            found[at % len(found)] = rng.randrange(256)
        elif how == 1:
            del found[at : at + rng.randint(1, 40)]
        elif how == 2:
            found[at:at] = found[at : at + rng.randint(1, 200)]
        elif how == 3:
            found[at : at + rng.randint(0, 6)] = rng.choice(_EXTREME)
        elif how == 4:
            del found[at:]
        else:
            found[at:at] = bytes(rng.randrange(256) for _ in range(rng.randint(1, 20)))
    return bytes(found)


def read(path: Path) -> str:
    """Open and read one input; how it ended."""
    try:
        with closing(open_target(str(path))) as source:
            for _ in range(1000):
                poll = source.poll()
                if poll.ended:
                    break
            source.describe()
    except KvscopeError as error:
        said = str(error)
    else:
        said = ""
    assert "\n" not in said, f"an error of several lines: {said!r}"
    return "refused" if said else "read"


def main() -> int:
    """Run; exit 1 at the first input that does not end as it must."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng, ended, slowest = random.Random(options.seed), Counter[str](), 0.0
    data = {kind: [path.read_bytes() for path in paths] for kind, paths in KINDS.items()}
    names = list(data)
    with tempfile.TemporaryDirectory() as folder:
        for index in range(options.count):
            kind = names[index % len(names)]
            path = Path(folder) / ("x.msgpack" if kind == "events" else "x")
            path.write_bytes(mutated(rng.choice(data[kind]), rng))
            began = time.monotonic()
            try:
                ended[f"{kind} {read(path)}"] += 1
            except Exception as error:
                kept = Path(tempfile.gettempdir()) / f"mutated-{kind}-{options.seed}-{index}"
                kept.write_bytes(path.read_bytes())
                sys.stderr.write(f"{kept}: {error!r}\n")
                return 1
            slowest = max(slowest, time.monotonic() - began)
            path.unlink()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(f"{options.count} inputs, slowest {slowest:.2f} s, peak {peak:.0f} MiB: {dict(ended)}\n")
    return int(slowest > _SLOW_S)


if __name__ == "__main__":
    raise SystemExit(main())
