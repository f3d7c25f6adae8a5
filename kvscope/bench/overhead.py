"""What the flight recorder and its probes cost the built-in engine: on against off step by step, and when off.

Runs tests/bench/bench_probes.py in a process of its own, so it needs a checkout and the extra `engine`. One decode
step with probes, the next without: what else the machine does hits both alike.
"""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kvscope.bench.result.result import Result

MODULE = "tests.bench.bench_probes"
LIMIT, OFF_LIMIT = 0.99, 0.001
"""Budgets: throughput with probes on to off; share of a step that probe points take when they are off."""
STEPS, QUICK_STEPS = 3000, 600
_ON = re.compile(r"on / off: ([\d.]+) \(95 % interval ([\d.]+) to ([\d.]+)\)")
_PAIRS = re.compile(r"from (\d+) pairs of decode steps, ([\d.]+) ms each")
_OFF = re.compile(r"= ([\d.]+) µs a step, ([\d.]+) % of")


def configure(parser: argparse.ArgumentParser) -> None:
    """How long to measure."""
    parser.add_argument("--steps", type=int, metavar="N", help=f"decode steps, half of them with probes ({STEPS})")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_STEPS} steps, under two minutes")


def measure(options: argparse.Namespace) -> Result:
    """Run the benchmark and read its figures."""
    from kvscope.errors import UsageError
    from kvscope.progress import waiting

    steps = options.steps or (QUICK_STEPS if options.quick else STEPS)
    if steps < 100:
        raise UsageError(f"--steps {steps}: expected at least 100")
    with waiting(f"measuring {steps} decode steps, every second one with probes") as tick:
        return result_of(_run(steps, _root(), tick), steps)


def result_of(said: str, steps: int) -> Result:
    """Turn what the benchmark printed into a result; SourceError when a figure is missing."""
    from kvscope.bench.result.quantity import Quantity
    from kvscope.bench.result.result import Result
    from kvscope.errors import SourceError

    on, pairs, off = _ON.search(said), _PAIRS.search(said), _OFF.search(said)
    if on is None or pairs is None or off is None:
        raise SourceError(f"{MODULE} said {said.strip()[-200:]!r}; expected its three figures")
    ratio, low, high = (float(text) for text in on.groups())
    step_s, off_s, off_share = float(pairs[2]) / 1e3, float(off[1]) / 1e6, float(off[2]) / 100
    warns = [] if high >= LIMIT else [f"Probes cost {1 - ratio:.2%} of the throughput, above {1 - LIMIT:.0%}."]
    if off_share > OFF_LIMIT:
        warns.append(f"Probes that are off cost {off_share:.2%} of a step, above {OFF_LIMIT:.1%}.")
    return Result(
        bench="overhead",
        title="Cost of the probes in the built-in engine",
        settings={"steps": steps, "pairs": int(pairs[1])},
        quantities=(
            Quantity("throughput_on_to_off", ratio, "ratio", (high - low) / 2, "higher"),
            Quantity("step_s", step_s, "s", None, "lower"),
            Quantity("off_s_per_step", off_s, "s", None, "lower"),
            Quantity("off_share", off_share, "ratio", None, "lower"),
        ),
        says=(
            f"On: {ratio:.2%} of the throughput without probes (95 % interval {low:.2%} to {high:.2%}), "
            f"from {pairs[1]} pairs of neighbouring decode steps of {pairs[2]} ms.",
            f"Off: {off[1]} µs a step, {off_share:.4%} of it.",
        ),
        warns=tuple(warns),
    )


def _root() -> Path:
    from pathlib import Path

    from kvscope.errors import UsageError

    root = Path(__file__).resolve().parents[2]
    if not (root / "tests" / "bench" / "bench_probes.py").exists():
        raise UsageError(f"{root}: no tests/bench/bench_probes.py there; expected a checkout of the project")
    return root


def _run(steps: int, root: Path, tick: Callable[[float], None]) -> str:
    import importlib.util
    import subprocess
    import sys
    import time

    from kvscope.errors import SourceError, UsageError

    missing = [name for name in ("torch", "numba", "safetensors") if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"the built-in engine needs {', '.join(missing)}: pip install 'kvscope[engine]'")
    command = [sys.executable, "-m", MODULE, "--steps", str(steps)]
    began = time.monotonic()
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            while True:
                try:
                    said, complaint = child.communicate(timeout=0.5)
                    break
                except subprocess.TimeoutExpired:
                    tick(time.monotonic() - began)
        except BaseException:
            child.kill()
            raise
    # Exit code 1 is the benchmark's own verdict; its figures are there all the same.
    if child.returncode not in (0, 1) or not said:
        raise SourceError(f"{MODULE} ended with {child.returncode}: {complaint.strip().splitlines()[-1:] or 'no word'}")
    return said
