"""Any engine in a steady state, as rates and values by metric: for recordings of playbooks and for replayed reports.

A counter is given as its increase per second, a gauge or an observation as its value. A pair ``[a, b]`` moves straight
from one to the other; ``jump`` before a number lets a counter grow all at once, in the middle; ``still`` before one
takes a gauge's noise away; ``pulse`` shows a gauge in every fifth row only, ``gaps`` in all the others (a counter
stands still between); ``rare`` gives an observation in every eighth row only; ``resets`` starts a counter anew in
every fourth row.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvscope.recording.fixture import parse_series
from kvscope.sources.source import Mark
from probes.catalog import metric_of
from probes.sample import Sample

Values = Mapping[str, Any]
TAGS = {
    "engine": "any",
    "version": "1",
    "model": "m",
    "device": "gpu",
    "workload": "same requests",
    "offered_load": "same load",
    "cap": "256",
}
_EXACT = ("config.", "sched.", "events.", "compile.events", "quality.falls", "kernel.kv_write_launches")


@dataclass(frozen=True)
class Steady:
    """A marked segment in one state."""

    name: str
    values: Values
    tags: dict[str, str] = field(default_factory=dict)


def stream(
    segments: Iterable[Steady], *, rows: int = 12, every_s: float = 2.0, noise: float = 0.01, seed: int = 0
) -> list[Sample | Mark]:
    """Return marks and samples in time order, ``rows`` rows per segment."""
    rng, totals = random.Random(seed), dict[str, float]()
    items: list[Sample | Mark] = []
    t = 1000.0
    for segment in segments:
        items.append(Mark(segment.name, t, {**TAGS, **segment.tags}))
        for row in range(rows + 1):
            t += every_s
            for name, stated in segment.values.items():
                if stated is not None and not (str(stated).startswith("rare") and row % 8):
                    scatter = 0.0 if name.startswith(_EXACT) else noise
                    items.append(
                        _sample(name, stated, (row, rows), t, every_s, totals, max(0.0, rng.gauss(1, scatter)))
                    )
        t += every_s / 2
    return items


def _sample(
    name: str, stated: Any, at: tuple[int, int], t: float, dt: float, totals: dict[str, float], scatter: float
) -> Sample:
    metric, labels = parse_series(name)
    line = metric_of(metric)
    assert line is not None, f"{metric} is not in the catalogue"
    value, how = _value(stated, at)
    if (how == "pulse" and at[0] % 5) or (how == "gaps" and not at[0] % 5):
        value = 0.0
    if line.kind != "counter" and not metric.endswith((".sum", ".count")):
        return Sample(metric, float(f"{value * (1 if how == 'still' else scatter):.6g}"), t, labels)
    row, rows = at
    grown = value * dt * scatter
    if how == "jump":
        grown = value if row == rows // 2 else 0.0
    if how == "resets" and row and not row % 4:
        totals[name] = 0.0
    totals[name] = totals.get(name, 0.0) + (grown if row or how == "jump" else 0.0)
    return Sample(metric, float(f"{totals[name]:.9g}"), t, labels)


def _value(stated: Any, at: tuple[int, int]) -> tuple[float, str]:
    if isinstance(stated, Sequence) and not isinstance(stated, str):
        first, last = (float(one) for one in stated)
        return first + (last - first) * at[0] / at[1], "moving"
    if isinstance(stated, str):
        how, _, number = stated.partition(" ")
        return float(number), how
    return float(stated), ""
