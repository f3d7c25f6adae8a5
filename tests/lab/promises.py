"""Hold what findings promise against what lifting their cause brought, and count windows that are free of findings.

    python -m tests.lab.promises DIR…

A promise says of which figure it is a factor: what is expected at least, or nothing, and what is possible at most. It
covers what came where that lies between the two, within ``WITHIN``. Promises of a figure that no client sees, and those
of "nothing" (the clients are the limit), are not counted.

Windows in which nothing was true are those of cases that no lift helped: as they were, once more, and with each setting
lifted, which left them what they were.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kvscope.diagnose import diagnose
from kvscope.finding import Finding
from kvscope.playbook import load_all
from kvscope.playbook_schema import Playbook
from tests.lab.score import CLAIMS, accepted, cases_of, read_run
from tests.lab.truth import Truth, figures, gain_of, truth_of

WITHIN = 1.1
"""What a promise may be off by: equal runs differ by as much."""
SETTINGS = ("cap", "pool", "budget", "reuse", "kv_type")
_FIGURES = {
    "generation throughput": ("tokens_per_s",),
    "the engine's work, if no prompt had to be computed": ("tokens_per_s",),
    "time between tokens": ("tpot_s",),
    "time of a request": ("e2e_s",),
}
"""What a promise is of → what a client saw of it."""


@dataclass(frozen=True)
class Promise:
    """One finding's promise and what lifting its cause brought: factors, 1 for nothing."""

    case: str
    slug: str
    lift: str
    of: str
    least: float
    most: float | None
    came: float

    @property
    def covers(self) -> bool:
        """Whether what came lies in what was promised."""
        return self.least / WITHIN <= self.came <= (self.most or float("inf")) * WITHIN


def promises_of(case: Path, truth: Truth, claims: Sequence[Finding]) -> list[Promise]:
    """Return each promise of ``claims`` whose cause is true and whose figure a client saw."""
    base, again = figures(case / "base") or {}, figures(case / "again") or {}
    found = []
    for one in claims:
        gain, lifts = one.gain, [lift for lift in truth.true if one.slug in accepted(truth, [lift])]
        if gain is None or gain.of not in _FIGURES:
            continue
        for lift in lifts:
            lifted = figures(case / lift.partition("/")[0]) or {}
            for figure in _FIGURES[gain.of]:
                came = max(1.0, min(gain_of(figure, base, lifted), gain_of(figure, again, lifted)))
                least = gain.expected or 1.0
                found.append(Promise(case.name, one.slug, lift, gain.of, least, gain.bound, came))
    return found


def main() -> None:
    """Print the windows with a finding that nothing bears out, then the promises that do not cover what came."""
    asked = argparse.ArgumentParser(prog="python -m tests.lab.promises")
    asked.add_argument("folders", nargs="+", type=Path)
    rules, promises, free, alarms = load_all(), list[Promise](), 0, list[str]()
    for folder in asked.parse_args().folders:
        for case, floors in cases_of(folder):
            truth = truth_of(case, floors)
            if truth is None or not truth.settled:
                continue
            if truth.true:
                promises += promises_of(case, truth, _claims(case / "base", rules))
                continue
            for run in ("base", "again", *(lift for lift in SETTINGS if (case / lift / "pages.jsonl.gz").exists())):
                beside = {one.slug for one in _claims(case / run, rules)} - accepted(truth, truth.small + truth.hidden)
                free += not beside
                alarms += [f"{case.name}/{run}: {', '.join(sorted(beside))}"] if beside else []
    print(f"{free} of {free + len(alarms)} windows in which nothing was true are free of findings")
    print(*alarms, sep="\n")
    covered = sum(one.covers for one in promises)
    print(f"{covered} of {len(promises)} promises cover what came")
    for one in promises:
        if not one.covers:
            most = "no bound" if one.most is None else f"{one.most:.2f}"
            print(f"{one.case}: {one.slug} on {one.of}: {one.least:.2f} to {most}, {one.came:.2f} came by {one.lift}")


def _claims(run: Path, rules: Sequence[Playbook]) -> list[Finding]:
    store, description = read_run(run, pages_alone=False)
    return [one for one in diagnose(store, rules, description).findings if one.verdict in CLAIMS]


if __name__ == "__main__":
    main()
