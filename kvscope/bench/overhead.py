"""What the flight recorder and its probes cost the built-in engine: on against off step by step, and when off.

One decode step with probes, the next without: what else the machine does hits both alike.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from kvscope.bench import _child
from kvscope.errors import UsageError
from kvscope.progress import waiting
from kvscope.result.result import Quantity, Result

LIMIT, OFF_LIMIT = 0.99, 0.001
"""Budgets: throughput with probes on to off; share of a step that probe points take when they are off."""
STEPS, QUICK_STEPS = 3000, 600


def configure(parser: argparse.ArgumentParser) -> None:
    """How long to measure."""
    parser.add_argument("--steps", type=int, metavar="N", help=f"decode steps, half of them with probes ({STEPS})")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_STEPS} steps, under two minutes")


def measure(options: argparse.Namespace) -> Result:
    """Have the engine time its own steps."""
    steps = options.steps or (QUICK_STEPS if options.quick else STEPS)
    if steps < 100:
        raise UsageError(f"--steps {steps}: expected at least 100")
    with waiting(f"measuring {steps} decode steps, every second one with probes") as tick:
        return result_of(_child.found("engine.lab.tables.probes", ["--steps", str(steps)], tick), steps)


def result_of(found: Mapping[str, Any], steps: int) -> Result:
    """Hold the figures against their budgets."""
    ratio, low, high, step_s = (float(found[name]) for name in ("ratio", "low", "high", "step_s"))
    off_share = found["off_s"] / step_s
    warns = [] if high >= LIMIT else [f"Probes cost {1 - ratio:.2%} of the throughput, above {1 - LIMIT:.0%}."]
    if off_share > OFF_LIMIT:
        warns.append(f"Probes that are off cost {off_share:.2%} of a step, above {OFF_LIMIT:.1%}.")
    return Result(
        bench="overhead",
        title="Cost of the probes in the built-in engine",
        settings={"steps": steps, "pairs": found["pairs"]},
        quantities=(
            Quantity("throughput_on_to_off", ratio, "ratio", (high - low) / 2, "higher"),
            Quantity("step_s", step_s, "s", None, "lower"),
            Quantity("row_s", found["row_s"], "s", None, "lower"),
            Quantity("off_s_per_step", found["off_s"], "s", None, "lower"),
            Quantity("off_share", off_share, "ratio", None, "lower"),
        ),
        says=(
            f"On: {ratio:.2%} of the throughput without probes (95 % interval {low:.2%} to {high:.2%}), "
            f"from {found['pairs']} pairs of neighbouring decode steps of {1e3 * step_s:.2f} ms; a row takes "
            f"{1e6 * found['row_s']:.0f} µs (median), {1e6 * found['row_mean_s']:.0f} µs (mean).",
            f"Off: {1e6 * found['off_s']:.2f} µs a step, {off_share:.4%} of it.",
        ),
        warns=tuple(warns),
    )
