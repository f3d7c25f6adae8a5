"""Turn on a live engine's own profiler for a few steps, find the trace it writes, and diagnose it.

vLLM and SGLang. What it will cost is said before it starts: steps are slower while the profiler runs, and the engine
stands still while it writes the trace. An engine that runs nothing is not profiled.
"""

from __future__ import annotations

import argparse

GROUP = "watch an engine"
EXAMPLES = ("kvscope profile http://localhost:8000 --steps 20",)

_COST = (
    "While it lasts steps take longer, often 1.2 to 3 times; then the engine stands still while it writes the trace, "
    "for seconds, sometimes a minute."
)


def configure(parser: argparse.ArgumentParser) -> None:
    """URL, how many steps, where the trace lies, and diagnose's options."""
    from kvscope.commands._options import add_access, add_report, add_timing
    from kvscope.commands._told import add_said, add_told

    parser.add_argument("target", metavar="URL", help="a vLLM or SGLang server")
    add_access(parser)
    parser.add_argument("--steps", type=int, default=20, metavar="N", help="steps to profile, 1 to 1000 (20)")
    parser.add_argument("--dir", metavar="FOLDER", help="where the engine writes its traces, as seen from this machine")
    parser.add_argument("--yes", action="store_true", help="do not ask before it starts")
    parser.add_argument("--baseline", metavar="TARGET", help="compare with this trace")
    add_told(parser)
    add_said(parser)
    add_timing(parser)
    add_report(parser)
    parser.set_defaults(segments=None)


def run(options: argparse.Namespace) -> int:
    """Exit as diagnose does; 4 where nothing runs, 130 where it was declined."""
    import sys
    from contextlib import closing

    from kvscope.commands import diagnose
    from kvscope.errors import EXIT_INTERRUPTED, UsageError
    from kvscope.progress import waiting
    from kvscope.sources.profiling import LOOK_S, Profiler, enough

    if not 1 <= options.steps <= 1000:
        raise UsageError(f"--steps {options.steps}: expected 1 to 1000")
    with closing(Profiler(options.target, options.dir)) as profiler:
        with waiting("looking at the engine's pace") as show:
            show(0.0)
            before = profiler.watch(LOOK_S)
        enough(before, options.target)
        step = before.step_s
        pace = (
            f"{step * 1e3:.3g} ms a step now: about {options.steps * step:.2g} s" if step else "steps not counted here"
        )
        print(
            f"kvscope: profiling {options.steps} steps of {profiler.engine} at {options.target} ({pace}, "
            f"{before.running:.0f} running). {_COST} The trace stays in {profiler.folder}.",
            file=sys.stderr,
        )
        if sys.stdin.isatty() and not options.yes and input("Start? [y/N] ").strip().lower() not in ("y", "yes"):
            return EXIT_INTERRUPTED
        found = profiler.run(options.steps, before)
    slower = (
        f"{found.pace.step_s / step:.2g} times as long a step" if step and found.pace.step_s else "an unknown slowing"
    )
    print(
        f"kvscope: it cost {slower} for {found.pace.seconds:.2g} s, and {found.stood_s:.2g} s of standing still; "
        f"{found.trace}" + (f" (and {len(found.others)} of other ranks)" if found.others else ""),
        file=sys.stderr,
    )
    options.target = str(found.trace)
    return diagnose.run(options)
