"""Break the built-in engine on purpose, in every way it knows, and see which cause is named.

Faults at three severities, healthy controls at several loads, and pairs of faults, each under several seeds.
An engine is started as it should be and measured, then its fault is turned on and measured again, as one would see it
who marked the moment; a fault without a fix is seen alone. The length of a run is counted in steps, so that a slow
machine takes longer and judges by as much. Every run is kept in --log at once: an interrupted matrix goes on where it
stopped, and --part splits it over machines whose logs --merge puts together. With --keep what each run was judged by
is recorded, and --merge with the same folder judges those recordings again, by the playbooks as they stand.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kvscope.bench._matrix_plan import Case
    from kvscope.bench._matrix_run import Outcome
    from kvscope.bench.result.result import Result

SEEDS, QUICK_KINDS = "3", ("faults", "healthy")


def configure(parser: argparse.ArgumentParser) -> None:
    """What to run, and where to keep it."""
    add = parser.add_argument
    add("--kinds", default="faults,healthy,pairs", metavar="K,…", help="faults, healthy, pairs (all)")
    add("--only", default="", metavar="FAULT,…", help="these faults (all)")
    add("--severity", default="", metavar="S,…", help="mild, clear, severe (all)")
    add("--seeds", default=SEEDS, metavar="N|A-B", help=f"one run of each case a seed: 0 to N-1, or A to B ({SEEDS})")
    add("--part", default="1/1", metavar="I/N", help="every N-th case, from the I-th on (1/1)")
    add("--log", metavar="FILE", help="keep finished runs; with it an interrupted matrix goes on")
    add("--merge", nargs="+", default=[], metavar="FILE", help="start nothing: judge the runs of these logs together")
    add("--keep", metavar="FOLDER", help="record every run there; with --merge: judge what was recorded again")
    add("--verify", action="store_true", help="also try the experiment of what was found, and compare its gain")
    add(
        "--unchanged", type=int, default=0, metavar="N", help="instead: N pairs of stretches with nothing changed (A/A)"
    )
    add("--quick", action="store_true", help="one fault and one control, about 20 s")


def measure(options: argparse.Namespace) -> Result:
    """Run what is not in the log yet, and judge all of it."""
    from pathlib import Path

    from kvscope.bench import _matrix_log, _matrix_plan, _matrix_result

    settings = {name: getattr(options, name) for name in ("kinds", "only", "severity", "seeds", "part", "verify")}
    if options.merge:
        runs = list(_matrix_log.read(map(Path, options.merge)).values())
        if options.keep:
            runs = _again(runs, Path(options.keep))
        return _matrix_result.make(runs, {"merged": len(options.merge)})
    if options.unchanged:
        return _unchanged(options.unchanged, options.only or "generic_kernel")
    cases, seeds = _cases(options)
    cases = _matrix_plan.part(cases, options.part)
    log = Path(options.log) if options.log else None
    found = _run(cases, seeds, log, Path(options.keep) if options.keep else None, verify=options.verify)
    return _matrix_result.make(found, settings)


def _cases(options: argparse.Namespace) -> tuple[tuple[Case, ...], range]:
    from kvscope.bench import _matrix_plan
    from kvscope.errors import UsageError, nearest

    if options.quick:
        return _matrix_plan.cases(QUICK_KINDS, _matrix_plan.QUICK, ("clear",)), range(1)
    kinds = _words(options.kinds)
    for kind in kinds:
        if kind not in _matrix_plan.KINDS:
            raise UsageError(f"--kinds {kind!r}{nearest(kind, _matrix_plan.KINDS)}; there are faults, healthy, pairs")
    seeds = _matrix_plan.seeds(options.seeds)
    return _matrix_plan.cases(kinds, _words(options.only), _words(options.severity)), seeds


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _again(runs: Sequence[Outcome], folder: Path) -> list[Outcome]:
    """Judge kept runs by the playbooks as they stand."""
    from kvscope.bench import _matrix_keep
    from kvscope.playbook import load_all
    from kvscope.progress import Line

    books, line, found = load_all(), Line(), []
    try:
        for number, run in enumerate(runs, 1):
            line.show(f"{number} of {len(runs)}: {run.label}, seed {run.seed}")
            found.append(_matrix_keep.again(folder, run, books))
    finally:
        line.wipe()
    return found


def _run(
    cases: Sequence[Case], seeds: Sequence[int], log: Path | None, folder: Path | None, *, verify: bool
) -> list[Outcome]:
    from functools import partial

    from kvscope.bench import _matrix_keep, _matrix_log
    from kvscope.bench._matrix_run import run
    from kvscope.playbook import load_all
    from kvscope.progress import Line

    known = _matrix_log.read([log]) if log is not None and log.exists() else {}
    books, line, found = load_all(), Line(), []
    keep = {"keep": partial(_matrix_keep.keep, folder)} if folder is not None else {}
    try:
        for number, case in enumerate(cases, 1):
            todo = [seed for seed in seeds if (case.label, seed) not in known]
            found += [known[case.label, seed] for seed in seeds if (case.label, seed) in known]
            tell = lambda text, number=number: line.show(f"{number} of {len(cases)}: {text}")  # noqa: E731
            for outcome in run(case, todo, books, tell, verify=verify, **keep) if todo else ():
                found.append(outcome)
                if log is not None:
                    _matrix_log.add(log, outcome)
    finally:
        line.wipe()
    return found


def _unchanged(pairs: int, only: str) -> Result:
    """Verify changes that nobody made, on an engine with a fault: something is there to be found, and nothing done."""
    from kvscope.bench import _matrix_plan, _matrix_result, _matrix_unchanged
    from kvscope.errors import UsageError
    from kvscope.playbook import load_all
    from kvscope.progress import Line

    if pairs < 1 or "," in only:
        raise UsageError(f"--unchanged {pairs} --only {only}: expected at least one pair, and one fault")
    cases = _matrix_plan.cases(("faults", "healthy"), (only,), ("clear",))
    books, line, judged = load_all(), Line(), []
    try:
        for number, answers in enumerate(_matrix_unchanged.run(cases[0], pairs, books, line.show), 1):
            line.show(f"{number} of {pairs} pairs")
            judged.append(answers)
    finally:
        line.wipe()
    return _matrix_result.unchanged(judged, only)
