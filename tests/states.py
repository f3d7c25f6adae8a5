"""The recordings of the playbook library: each from steady states in ``tests/states/ID.yaml``, one per verdict.

``tests/generated.py`` has them written. A file's keys: ``engine`` of the source, ``rows``, ``base`` (in every
segment), ``before`` (the baseline's own values, where the rule compares), ``now`` (the current segment's own) and
``verdicts``: what differs from ``now``, where null takes a metric away everywhere. ``confirmed`` and ``refuted`` differ
in a third segment, the experiment.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from kvscope.recording import write_fixture
from tests.steady import Steady, stream

FOLDER = Path(__file__).resolve().parent / "states"
AFTERWARDS = ("confirmed", "refuted")
WINDOWS = 24
"""Rows of a segment of an experiment: with fewer than 20 windows of samples nothing is confirmed."""


def situations(path: Path) -> dict[str, list[Steady]]:
    """Return the segments of every verdict of a file."""
    stated: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    base, now = stated.get("base") or {}, stated.get("now") or {}
    found = {}
    for verdict, differs in stated["verdicts"].items():
        differs = dict(differs or {})
        tags = {str(key): str(value) for key, value in (differs.pop("tags", None) or {}).items()}
        gone = {name: None for name, value in differs.items() if value is None}
        segments = [Steady("before", {**base, **stated["before"], **gone})] if "before" in stated else []
        if verdict in AFTERWARDS:
            segments += [Steady("after", {**base, **now}), Steady("experiment", {**base, **now, **differs})]
        else:
            segments.append(Steady("after", {**base, **now, **differs}, tags))
        found[verdict] = segments
    return found


def write(folder: Path) -> list[Path]:
    """Write every recording into ``folder`` and return their paths."""
    written = []
    for path in sorted(FOLDER.glob("*.yaml")):
        stated = yaml.safe_load(path.read_text(encoding="utf-8"))
        source = {"kind": "ring", "engine": stated.get("engine", "any"), "version": "1", "target": "synthetic"}
        for seed, (verdict, segments) in enumerate(situations(path).items()):
            target = folder / f"{path.stem}.{verdict}.jsonl"
            rows = max(stated.get("rows", 12), WINDOWS if verdict in AFTERWARDS else 0)
            items = stream(segments, rows=rows, seed=seed)
            write_fixture(target, items, source=source, synthetic=True)
            written.append(target)
    return written
