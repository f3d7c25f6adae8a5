"""Public trouble reports as streams, and how what is said of them is scored.

    python -m tests.cases.replay TARGET…     a folder of cases, or a file of rows such as ``public.yaml``

The reading is the product's (``kvscope.sources.stated``); only input goes in: engine, version, flags and figures.
Outcomes: *right* the cause is what is claimed first; *second* it is claimed second; *abstains* nothing is claimed, and
a signal is asked for that a rule of the cause would decide by; *silent* neither; *wrong* another cause is claimed
first. Without a cause: *quiet*, or *false alarm*.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kvscope.diagnose import diagnose
from kvscope.errors import SourceError
from kvscope.finding import Diagnosis
from kvscope.playbook import load_all
from kvscope.sources.stated.document import read
from kvscope.sources.stated.source import StatedSource
from kvscope.store import Store

SYNONYMS: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "synonyms.yaml").read_text(encoding="utf-8"))
"""Causes by other names: what a report must not be told, and the slugs of playbooks that would tell it."""
PUBLIC = Path(__file__).parent / "public.yaml"
PLAYBOOKS = load_all()
CLAIMS = ("confirmed", "likely", "possible")
UNDECIDED = "undetermined_need_more_signals"


@dataclass(frozen=True, slots=True)
class Case:
    """A report's input, and its answer: the cause, causes that are true beside it, and what must not be said."""

    name: str
    given: Mapping[str, Any]
    cause: str = ""
    beside: tuple[str, ...] = ()
    forbidden: frozenset[str] = frozenset()
    confirmed: bool = True
    replayable: bool = True


def cases(target: Path) -> Iterator[Case]:
    """Read a folder of cases, or a file of rows."""
    if target.is_dir():
        yield from (_of_report(path) for path in sorted(target.glob("*.yaml")))
        return
    for one in yaml.safe_load(target.read_text(encoding="utf-8")):
        rows = [dict(zip(("key", "value", "unit", "arm"), row, strict=True)) for row in one["rows"]]
        given = {"engine": one["engine"], "observations": rows, "config_flags": one.get("flags", {})}
        if "device" in one:
            given["hardware"] = one["device"]
        beside = tuple(one.get("also", ()))
        yield Case(one["source"], given, one.get("expected", ""), beside, confirmed=one.get("confirmed", True))


def _of_report(path: Path) -> Case:
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    given = {key: found[key] for key in ("engine", "version", "config_flags", "observations") if key in found}
    forbidden = frozenset(slug for name in found["must_not_say"] for slug in (name, *SYNONYMS.get(name, ())))
    cause = found["expected_diagnosis"]
    replayable = found["replayable"] in ("full", "partial")
    return Case(path.stem, given, cause, (), forbidden, bool(found["confirmed"]), replayable)


def judged(case: Case) -> Diagnosis:
    """Diagnose a case's figures; nothing is found where not one of them has a name that is known."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.yaml"
        path.write_text(yaml.safe_dump(dict(case.given)), encoding="utf-8")
        try:
            source = StatedSource(read(path), path, path.stat().st_mtime)
        except SourceError:
            return Diagnosis({}, (), ())
    poll, store = source.poll(), Store()
    for mark in poll.marks:
        store.mark(mark)
    store.add(poll.samples)
    return diagnose(store, PLAYBOOKS, source.describe())


def claims(found: Diagnosis) -> list[str]:
    """Slugs that are claimed, strongest first; those another finding explains are not claims of their own."""
    return [one.slug for one in found.findings if one.verdict in CLAIMS and not one.explained_by]


def outcome(case: Case, found: Diagnosis) -> str:
    """How a diagnosis did, in one word."""
    said = claims(found)
    causes = {case.cause, *case.beside} - {"", UNDECIDED}
    if not causes:
        return "false alarm" if said else "quiet"
    if said:
        return "right" if said[0] in causes else "second" if causes & set(said[:2]) else "wrong"
    asked = {one.signal for one in found.unknown}
    of_cause = [rule for rule in PLAYBOOKS if rule.cause.slug in causes]
    return "abstains" if any(asked & set(rule.signals()) for rule in of_cause) else "silent"


def main() -> None:
    """Print how each target did, and every case that was not right."""
    asked = argparse.ArgumentParser(prog="python -m tests.cases.replay")
    asked.add_argument("targets", nargs="+", type=Path)
    asked.add_argument("--table", action="store_true", help="a Markdown table instead of lines")
    args = asked.parse_args()
    for target in args.targets:
        counted: Counter[str] = Counter()
        for case in cases(target):
            found = judged(case)
            word = outcome(case, found)
            counted[word] += 1
            said = ", ".join(claims(found)[:3]) or "nothing"
            broken = sorted(set(claims(found)) & case.forbidden)
            if args.table:
                print(f"| {case.name} | {case.cause or 'nothing'} | {word} | {said} |")
            elif word not in ("right", "quiet") or broken:
                print(f"{word:12} {case.name[:60]:60} {case.cause}: {said}", *(f"FORBIDDEN {one}" for one in broken))
        totals = ", ".join(f"{word} {count}" for word, count in counted.most_common())
        print(f"{target}: {counted.total()} cases, {totals}")


if __name__ == "__main__":
    main()
