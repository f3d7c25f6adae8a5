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
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from kvscope.bench import _matrix_plan, _matrix_run
from kvscope.bench._child import Log
from kvscope.bench._matrix_plan import Case
from kvscope.bench._matrix_run import Outcome, run_unchanged
from kvscope.errors import UsageError, nearest
from kvscope.playbook import load_all
from kvscope.progress import Line
from kvscope.result.result import Quantity, Result, Table

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
    add("--device", default="cpu", metavar="NAME", help="where the engines run: cpu (default), cuda")
    add("--scale", type=int, default=1, metavar="N", help="documents and pool N times as large, for a GPU (1)")
    add("--verify", action="store_true", help="also try the experiment of what was found, and compare its gain")
    add(
        "--unchanged", type=int, default=0, metavar="N", help="instead: N pairs of stretches with nothing changed (A/A)"
    )
    add("--quick", action="store_true", help="one fault and one control, about 20 s")


def measure(options: argparse.Namespace) -> Result:
    """Run what is not in the log yet, and judge all of it."""
    told = ("kinds", "only", "severity", "seeds", "part", "device", "scale", "verify")
    settings = {name: getattr(options, name) for name in told}
    if options.merge:
        runs = _merged(options.merge)
        if options.keep:
            runs = _again(runs, Path(options.keep))
        return result_of(runs, {"merged": len(options.merge)})
    if options.unchanged:
        return _unchanged(options.unchanged, options.only or "generic_kernel")
    cases, seeds = _cases(options)
    if options.scale < 1:
        raise UsageError(f"--scale {options.scale}: expected at least 1")
    some = _matrix_plan.part(cases, options.part)
    cases = tuple(_matrix_plan.scaled(case, options.scale, options.device) for case in some)
    found = _run(cases, seeds, log_of(options.log), Path(options.keep) if options.keep else None, verify=options.verify)
    return result_of(found, settings)


def _cases(options: argparse.Namespace) -> tuple[tuple[Case, ...], range]:
    if options.quick:
        return _matrix_plan.cases(QUICK_KINDS, _matrix_plan.QUICK, ("clear",)), range(1)
    kinds = _words(options.kinds)
    for kind in kinds:
        if kind not in _matrix_plan.KINDS:
            raise UsageError(f"--kinds {kind!r}{nearest(kind, _matrix_plan.KINDS)}; there are faults, healthy, pairs")
    seeds = _matrix_plan.seeds(options.seeds)
    return _matrix_plan.cases(kinds, _words(options.only), _words(options.severity)), seeds


def _merged(paths: Sequence[str]) -> list[Outcome]:
    """Every run of these logs once; of two of the same case and seed the later one."""
    for path in paths:
        if not Path(path).is_file():
            raise UsageError(f"{path}: no such file; expected the log of a matrix")
    return list({(run.label, run.seed): run for path in paths for run in log_of(path).parts()}.values())


def log_of(path: str | None) -> Log[Outcome]:
    """Return the log of a matrix, one run a part; logs of several machines may be read together."""
    return Log(path, {"bench": "diagnosis"}, asdict, Outcome.from_json)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _again(runs: Sequence[Outcome], folder: Path) -> list[Outcome]:
    """Judge kept runs by the playbooks as they stand."""
    books, line, found = load_all(), Line(), []
    try:
        for number, run in enumerate(runs, 1):
            line.show(f"{number} of {len(runs)}: {run.label}, seed {run.seed}")
            found.append(_matrix_run.again(folder, run, books))
    finally:
        line.wipe()
    return found


def _run(
    cases: Sequence[Case], seeds: Sequence[int], log: Log[Outcome], folder: Path | None, *, verify: bool
) -> list[Outcome]:
    found: list[Outcome] = []
    books, line = load_all(), Line()
    keep = {"keep": partial(_matrix_run.keep, folder)} if folder is not None else {}
    try:
        for number, case in enumerate(cases, 1):
            known = {seed: one for seed in seeds if (one := log.get(case.label, seed))}
            found += known.values()
            todo = [seed for seed in seeds if seed not in known]
            tell = lambda text, number=number: line.show(f"{number} of {len(cases)}: {text}")  # noqa: E731
            for outcome in _matrix_run.run(case, todo, books, tell, verify=verify, **keep) if todo else ():
                found.append(outcome)
                log.add(outcome, case.label, outcome.seed)
    finally:
        line.wipe()
    return found


def _unchanged(pairs: int, only: str) -> Result:
    """Verify changes that nobody made, on an engine with a fault: something is there to be found, and nothing done."""
    if pairs < 1 or "," in only:
        raise UsageError(f"--unchanged {pairs} --only {only}: expected at least one pair, and one fault")
    cases = _matrix_plan.cases(("faults", "healthy"), (only,), ("clear",))
    books, line, judged = load_all(), Line(), []
    try:
        for number, answers in enumerate(run_unchanged(cases[0], pairs, books, line.show), 1):
            line.show(f"{number} of {pairs} pairs")
            judged.append(answers)
    finally:
        line.wipe()
    return unchanged(judged, only)


NOTHING = "(nothing)"
CLOSE = 0.25
"""A gain within this of the expected one was foretold."""
Told = tuple[str, Quantity]


def result_of(outcomes: Sequence[Outcome], settings: dict[str, Any]) -> Result:
    """Return the result over every run there is."""
    faults = [one for one in outcomes if one.kind == "faults"]
    tables = [_confusion(faults), _by_severity(faults)] if faults else []
    tried = [one.trial for one in outcomes if one.trial]
    if tried:
        tables.append(_gains(tried))
    told = [*_fault_quantities(faults), *_control_quantities(outcomes), *_gain_quantities(tried)]
    return Result(
        bench="diagnosis",
        title="Which cause is named when it is known",
        settings=settings,
        quantities=tuple(quantity for _, quantity in told),
        tables=tuple(tables),
        says=tuple(says for says, _ in told),
        warns=tuple(_warns(outcomes)),
        extra={"runs": [asdict(one) for one in outcomes]},
    )


def unchanged(judged: Sequence[Sequence[tuple[str, str]]], fault: str) -> Result:
    """Return how often a change that was never made was confirmed; ``judged`` has one row a pair of stretches."""
    answers = Counter(answer for pair in judged for _, answer in pair)
    total, pairs = sum(answers.values()), len(judged)
    fooled = [rule for pair in judged for rule, answer in pair if answer == "confirmed"]
    hit = sum(any(answer == "confirmed" for _, answer in pair) for pair in judged)
    rows = tuple((answer, count) for answer, count in answers.most_common())
    return Result(
        bench="diagnosis",
        title="Changes that were never made, verified",
        settings={"unchanged": pairs, "fault": fault},
        quantities=(Quantity("confirmed_unchanged", float(len(fooled)), "", None, "lower"),),
        tables=(Table("Answers", ("answer", "times"), ("", ""), rows),),
        says=(
            f"{pairs} pairs of stretches of one unchanged engine, each judged by every experiment whose signals it "
            f"has: {total} verifications, {len(fooled)} confirmed (in {hit} pairs).",
        ),
        warns=tuple(f"{rule}: confirmed although nothing was changed." for rule in fooled),
    )


def right(one: Outcome) -> bool:
    """Whether a run was judged right: the cause first, both of a pair anywhere, nothing on a control."""
    if one.kind == "pairs":
        return set(one.expected) <= set(one.slugs)
    return one.said == (one.expected[0] if one.expected else "")


def _real(runs: Sequence[Outcome]) -> list[Outcome]:
    """Those that the engine's own counters show to be what they were meant as."""
    return [one for one in runs if not one.untrue]


def _severity(one: Outcome) -> str:
    return one.label.rpartition("/")[2]


def _share(name: str, runs: Sequence[Outcome], holds: Callable[[Outcome], bool], says: str, better: str) -> list[Told]:
    if not runs:
        return []
    count = sum(map(holds, runs))
    share = count / len(runs)
    # Two standard errors with one run of each kind added: a share of 1 out of few is not certain.
    smooth = (count + 1) / (len(runs) + 2)
    error = 2 * (smooth * (1 - smooth) / (len(runs) + 2)) ** 0.5
    quantity = Quantity(name, share, "ratio", error, "higher" if better == "higher" else "lower")
    return [(f"{says}: {count} of {len(runs)}.", quantity)]


def _fault_quantities(faults: Sequence[Outcome]) -> Iterable[Told]:
    """Over the runs whose fault came about: a setting that changed nothing has no cause to be named."""
    yield from _left_out(faults, "absent", "the engine's counters do not show the fault")
    real = _real(faults)
    for level in dict.fromkeys(map(_severity, real)):
        runs = [one for one in real if _severity(one) == level]
        yield from _share(f"top1_{level}", runs, right, f"Right cause first, {level}", "higher")
        yield from _share(f"abstained_{level}", runs, lambda one: not one.said, f"Nothing said, {level}", "lower")
        wrong = lambda one: bool(one.said) and not right(one)  # noqa: E731
        yield from _share(f"wrong_{level}", runs, wrong, f"Another cause first, {level}", "lower")


def _left_out(runs: Sequence[Outcome], name: str, why: str) -> Iterable[Told]:
    absent = [one for one in runs if one.untrue]
    if absent:
        named = sum(bool(one.said) and (right(one) or not one.expected) for one in absent)
        says = f"Left out, as {why}: {len(absent)} ({named} of them named)."
        yield says, Quantity(name, float(len(absent)), "")


def _control_quantities(outcomes: Sequence[Outcome]) -> Iterable[Told]:
    controls = [one for one in outcomes if one.kind == "healthy"]
    yield from _left_out(controls, "unwell", "the engine's counters do not show a healthy run")
    healthy = _real(controls)
    yield from _share("false_alarms", healthy, lambda one: bool(one.named), "Healthy runs with an alarm", "lower")
    pairs = [one for one in outcomes if one.kind == "pairs"]
    real = _real(pairs)
    yield from _share("pairs_both", real, right, "Pairs with both causes named (both there by the counters)", "higher")
    either = lambda one: bool(set(one.expected) & set(one.slugs))  # noqa: E731
    yield from _share("pairs_one", real, either, "Pairs with at least one of the two named", "higher")


def _gain_quantities(tried: Sequence[dict[str, Any]]) -> Iterable[Told]:
    known = [one for one in tried if one["outcome"] == "confirmed" and one["expected"] and one["measured"]]
    if not known:
        return
    close = sum(abs(one["measured"] / one["expected"] - 1) <= CLOSE for one in known)
    yield (
        f"Gain within {CLOSE:.0%} of the expected one: {close} of {len(known)} confirmed.",
        Quantity("gain_foretold", close / len(known), "ratio", None, "higher"),
    )
    over = sum(bool(one["bound"]) and one["measured"] - (one["error"] or 0.0) > one["bound"] for one in known)
    yield (
        f"Gain above its bound by more than the interval: {over} of {len(known)}.",
        Quantity("gain_above_bound", over / len(known), "ratio", None, "lower"),
    )


def _confusion(faults: Sequence[Outcome]) -> Table:
    """One row a fault and severity: what was said first how often, the right cause in front."""
    rows = []
    for label in dict.fromkeys(one.label for one in faults):
        runs = [one for one in faults if one.label == label]
        said = Counter(one.said or NOTHING for one in runs)
        expected = runs[0].expected[0]
        others = ", ".join(f"{name} {count}" for name, count in said.most_common() if name not in (expected, NOTHING))
        absent = sum(bool(one.untrue) for one in runs)
        rows.append((label, expected, len(runs), said[expected], said[NOTHING], others or "", absent))
    columns = ("fault", "cause", "runs", "named first", "nothing", "another first", "not there by its counters")
    return Table("Confusion matrix", columns, ("",) * len(columns), tuple(rows))


def _by_severity(faults: Sequence[Outcome]) -> Table:
    rows = []
    real = _real(faults)
    for level in dict.fromkeys(map(_severity, real)):
        runs = [one for one in real if _severity(one) == level]
        count, silent = sum(map(right, runs)), sum(not one.said for one in runs)
        also = sum(set(one.expected) <= set(one.slugs) for one in runs)
        rows.append((level, len(runs), count / len(runs), also / len(runs), silent / len(runs)))
    columns = ("severity", "runs", "named first", "named at all", "nothing said")
    return Table("By severity", columns, ("", "", "ratio", "ratio", "ratio"), tuple(rows))


def _gains(tried: Sequence[dict[str, Any]]) -> Table:
    columns = ("finding", "outcome", "expected", "bound", "measured", "error")
    rows = tuple(tuple(one.get(column) for column in columns) for one in tried)
    return Table("Gains, as factors", columns, ("", "", "x", "x", "x", "x"), rows)


def _warns(outcomes: Sequence[Outcome]) -> Iterable[str]:
    for one in _real(outcomes):
        if one.kind == "healthy" and one.named:
            yield f"{one.label}, seed {one.seed}: false alarm {', '.join(named['id'] for named in one.named)}."
        elif one.kind == "faults" and one.said and not right(one):
            yield f"{one.label}, seed {one.seed}: {one.expected[0]} expected, {one.said} said."
