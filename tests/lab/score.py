"""Hold the diagnosis of each laboratory case against what its lifts proved, and write the tables of ``docs/proof.md``.

    python -m tests.lab.score DIR [--misses] [--pages]

Judged is what ``kvscope diagnose`` is given on the engine's own machine: its pages, beside them its log and KV events
where it publishes any, and what its command line says; with ``--pages`` its pages alone.

A case is ``right`` where a true cause is among the first two findings and at most three causes are named, ``silent``
where a cause was true and nothing was named, ``abstains`` where what is named leaves the true cause open by name or has
it third behind what is true beside it, ``wrong`` where only other causes are named. Where nothing helped, silence is
``quiet`` and a finding a false alarm. A case whose truth lies below what equal runs differ by is ``not settled``.
"""

from __future__ import annotations

import argparse
import gzip
import json
from argparse import Namespace
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from kvscope.authoring import drain, read_whole
from kvscope.commands._told import with_told
from kvscope.diagnose import diagnose
from kvscope.finding import Finding
from kvscope.playbook import load_all
from kvscope.playbook_schema import Playbook
from kvscope.sources.fetch import FetchError
from kvscope.sources.flags import parse_flags
from kvscope.sources.scrape import ScrapeSource
from kvscope.sources.source import Description, Poll
from kvscope.store import Store
from tests.lab.truth import SLUGS, Truth, floors_of, truth_of

CLAIMS = ("confirmed", "likely", "possible")
OUTCOMES = ("right", "abstains", "silent", "wrong", "quiet", "false alarm", "not settled")
CHAIN = {
    "prefill_compute_bound": ("long", "reuse", "pool/prefix"),
    "prefill_decode_interference": ("prompt", "reuse", "pool/prefix"),
}
"""What is true at the same time: a slug that may be named beside a true lift, and is neither right nor wrong for it."""


@dataclass(frozen=True)
class Scored:
    """One case: what is true, what was named (strongest first), and how that came out."""

    name: str
    engine: str
    family: str
    truth: Truth
    named: tuple[tuple[str, str], ...]
    outcome: str


class Played:
    """A run's pages as a live target: page, what stands beside it, and the command line, as they stood each second."""

    def __init__(self, run: Path) -> None:
        with gzip.open(run / "pages.jsonl.gz", "rt") as file:
            self._rows = [json.loads(line) for line in file]
        self._argvs: list[list[str]] = json.loads((run / "command.json").read_text())
        while not self._rows[0].get("text"):
            self._rows.pop(0)
        self._next = 0
        self._live = ScrapeSource(
            "http://127.0.0.1:1", wall=self._now, get=self._get, pid_of=lambda _: 1, flags=self._flags
        )

    def _now(self) -> float:
        return float(self._rows[self._next]["t"])

    def _get(self, url: str, timeout_s: float) -> str:
        row = self._rows[self._next]
        path = urlsplit(url).path
        text = row.get("text") if path == "/metrics" else row.get("side") if path == "/slots" else None
        if text is None:
            raise FetchError(f"{url}: {row.get('error', 'not there')}")
        return str(text)

    def _flags(self, pid: int, wanted: Collection[str]) -> dict[str, str]:
        found: dict[str, str] = {}
        for argv in self._argvs:
            found |= parse_flags(argv, wanted)
        return found

    def describe(self) -> Description:
        return self._live.describe()

    def poll(self) -> Poll:
        """Return all of it at once."""
        samples = list(self._live.poll().samples)
        for index in range(1, len(self._rows)):
            self._next = index
            samples += self._live.poll().samples
        return Poll(samples, ended=True)

    def close(self) -> None:
        self._live.close()


def read_run(run: Path, *, pages_alone: bool) -> tuple[Store, Description]:
    """Return what one run shows; with all of its material, as a person on the engine's machine would see it."""
    if pages_alone or not (run / "command.json").exists():
        return read_whole(run / "pages.jsonl.gz")
    beside = [str(run / name) for name in ("server.log.gz", "events.jsonl.gz") if _said(run / name)]
    told = Namespace(beside=beside, told=[], config=None, gpu=None, price=None)
    return drain(with_told(Played(run), told))


def _said(path: Path) -> bool:
    """Whether anything stands in a kept file; an engine that keeps no prefixes publishes no event."""
    if not path.exists():
        return False
    with gzip.open(path, "rb") as file:
        return bool(file.read(1))


def cases_of(folder: Path) -> list[tuple[Path, dict[str, float]]]:
    """Return the cases of a folder, each with the floors of its engine."""
    cases = sorted(path.parent for path in folder.glob("*/case.json"))
    by_engine: dict[str, list[Path]] = {}
    for path in cases:
        by_engine.setdefault(path.name.partition("-")[0], []).append(path)
    floors = {engine: floors_of(found) for engine, found in by_engine.items()}
    return [(path, floors[path.name.partition("-")[0]]) for path in cases]


def score(
    case: Path, rules: Sequence[Playbook], floors: Mapping[str, float], *, pages_alone: bool = False
) -> Scored | None:
    """Score one case; None where its runs are not all there."""
    truth = truth_of(case, floors)
    if truth is None:
        return None
    about = json.loads((case / "case.json").read_text())
    store, description = read_run(case / "base", pages_alone=pages_alone)
    found = diagnose(store, rules, description).findings
    claims = [one for one in found if one.verdict in CLAIMS]
    named = tuple(dict.fromkeys((one.slug, one.verdict) for one in claims))
    outcome = _outcome(truth, claims, {rule.id: rule.cause.slug for rule in rules})
    return Scored(case.name, about["engine"], about["family"], truth, named, outcome)


def accepted(truth: Truth, lifts: Sequence[str]) -> set[str]:
    """Return the slugs that name any of ``lifts``; prompts that cost throughput are a limit of prefill, too."""
    slugs = {slug for lift in lifts for slug in SLUGS[lift]}
    if "long" in lifts and truth.gains.get("long", 1.0) >= 2.0:
        slugs |= set(SLUGS["prompt"])
    return slugs


def _outcome(truth: Truth, claims: Sequence[Finding], slug_of: Mapping[str, str]) -> str:
    slugs = list(dict.fromkeys(one.slug for one in claims))
    true, small = accepted(truth, truth.true), accepted(truth, truth.small + truth.hidden)
    if not truth.settled:
        return "not settled"
    if not truth.true:
        return "quiet" if set(slugs) <= small else "false alarm"
    if true & set(slugs[:2]) and len(slugs) <= 3:
        return "right"
    if not slugs:
        return "silent"
    left_open = {slug_of.get(rival.look, "") for one in claims for rival in one.rivals if rival.state != "excluded"}
    beside = {slug for slug, lifts in CHAIN.items() if set(lifts) & set(truth.true)}
    if true & left_open or set(slugs) <= beside | small | true:
        return "abstains"
    return "wrong"


def table(scored: Sequence[Scored]) -> str:
    """Return the outcomes by engine and family as a Markdown table."""
    lines = ["| engine | family | cases | " + " | ".join(OUTCOMES) + " |", "|---|---|---|" + "---|" * len(OUTCOMES)]
    groups: dict[tuple[str, str], list[Scored]] = {}
    for one in scored:
        groups.setdefault((one.engine, one.family), []).append(one)
        groups.setdefault((one.engine, "all"), []).append(one)
    for (engine, family), found in sorted(groups.items(), key=lambda pair: (pair[0][0], pair[0][1] == "all", pair[0])):
        counts = Counter(one.outcome for one in found)
        cells = " | ".join(str(counts.get(outcome, 0) or "") for outcome in OUTCOMES)
        lines.append(f"| {engine} | {family} | {len(found)} | {cells} |")
    return "\n".join(lines)


def misses(scored: Sequence[Scored]) -> str:
    """Return each case that was not right or quiet, with what was true and what was named."""
    lines = ["| case | outcome | true (gain) | named |", "|---|---|---|---|"]
    for one in scored:
        if one.outcome not in ("right", "quiet"):
            true = ", ".join(f"{lift} {one.truth.gains[lift]:.1f}x" for lift in one.truth.true) or "nothing helps"
            named = ", ".join(f"{slug} ({verdict})" for slug, verdict in one.named) or "nothing"
            lines.append(f"| {one.name} | {one.outcome} | {true} | {named} |")
    return "\n".join(lines)


def main() -> None:
    """Print the tables."""
    asked = argparse.ArgumentParser(prog="python -m tests.lab.score")
    asked.add_argument("folder", type=Path)
    asked.add_argument("--misses", action="store_true", help="list what was not right, too")
    asked.add_argument("--pages", action="store_true", help="judge the pages alone")
    args = asked.parse_args()
    rules = load_all()
    found = [score(path, rules, floors, pages_alone=args.pages) for path, floors in cases_of(args.folder)]
    scored = [one for one in found if one is not None]
    print(table(scored))
    if args.misses:
        print()
        print(misses(scored))


if __name__ == "__main__":
    main()
