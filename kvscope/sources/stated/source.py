"""Stated figures as a target: each run stands for a minute in one state, and says that its errors are not known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from kvscope.sources.source import Description, Mark, Poll
from kvscope.sources.stated.figure import (
    Figure,
    Stated,
    aliases,
    arms,
    bits_of,
    figures_of_arm,
    unknown_notice,
    words_of,
)
from probes.catalog import COUNTER, metric_of
from probes.sample import Labels, Sample, labels_of

ROWS, EVERY_S = 30, 2.0
_JITTER = 1e-6
"""So much does a stated gauge move: what stands still to the last digit is a gauge that nobody refreshes."""
NOTE = "figures as stated: one number stands for a run, and its error is not known"


class StatedSource:
    """Gives the runs that a document tells of, the earlier first; it ends at once."""

    def __init__(self, stated: Stated, target: Path, when_s: float) -> None:
        self._stated, self._target = stated, target
        before, after = arms(stated.figures)
        self._arms = [arm for arm in (before, after) if arm] or [""]
        self._begins = when_s - ROWS * EVERY_S * (len(self._arms) + 1)
        self._given = False

    @property
    def arms(self) -> int:
        """How many runs are told of."""
        return len(self._arms)

    def describe(self) -> Description:
        tags = {"engine": self._stated.engine, **self._stated.tags}
        return Description(
            "figures", str(self._target), self._stated.engine, tags.get("version", ""), tags, note=NOTE, dated=False
        )

    def poll(self) -> Poll:
        if self._given:
            return Poll([], ended=True)
        self._given = True
        samples: list[Sample] = []
        marks: list[Mark] = []
        totals: dict[tuple[str, Labels], float] = {}
        t = self._begins
        for run in self._runs():
            if len(self._arms) > 1 or self._ratios():
                marks.append(Mark(run[0], t, {"engine": self._stated.engine, **self._stated.tags}))
            samples += _steady(run[1], t, totals, self._stated.seconds)
            t += (ROWS + 1) * EVERY_S
        samples.append(Sample("engine.info", 1.0, t - EVERY_S, labels_of(engine=self._stated.engine)))
        return Poll(samples, tuple(marks), tuple(self._notices()), ended=True)

    def close(self) -> None:
        """Nothing is held open."""

    def _runs(self) -> Iterator[tuple[str, list[Figure]]]:
        settings = [Figure(name, name, (), value) for name, value in self._stated.settings.items()]
        ratios = self._ratios()
        if ratios and len(self._arms) < 2:
            yield "before", settings + [Figure(name, name, (), 1.0) for name in ratios]
        for index, arm in enumerate(self._arms):
            name = ("before", "after")[index] if len(self._arms) > 1 else "after"
            last = index + 1 == len(self._arms)
            own = [Figure(name, name, (), value) for name, value in ratios.items()] if last else []
            yield name, _typed([*settings, *figures_of_arm(self._stated, arm), *own], arm)

    def _ratios(self) -> Mapping[str, float]:
        """Figures that tell only how a run compares with another: that one is 1."""
        table = aliases()["ratios"]
        return {table[one.key]: one.value for one in self._stated.figures if one.key in table}

    def _notices(self) -> Iterator[str]:
        yield NOTE
        yield from self._stated.notes
        if len(self._arms) > 1:
            before, after = (self._stated.arms.get(arm, arm) for arm in self._arms[:2])
            yield f"before: {before!r}, after: {after!r}"
        if any(one.total for one in self._stated.figures) and not self._stated.seconds:
            yield "counts without a time (seconds: …): their ratios are right, their rates are not"
        yield from unknown_notice(self._stated)


def _typed(figures: list[Figure], arm: str) -> list[Figure]:
    """The figures of a run with the KV type that its name tells: that one is its own, another may be of all runs."""
    bits = [found for word in words_of(arm) if (found := bits_of(word)) is not None]
    if not bits:
        return figures
    others = [one for one in figures if one.metric != "config.kv_bits"]
    return [*others, Figure("config.kv_bits", "config.kv_bits", (), min(bits))]


def _steady(
    figures: list[Figure], begins: float, totals: dict[tuple[str, Labels], float], seconds: float
) -> list[Sample]:
    samples = []
    for row in range(ROWS + 1):
        t = begins + row * EVERY_S
        for one in figures:
            line = metric_of(one.metric)
            if line is None:
                continue
            key = (one.metric, one.labels)
            if line.kind == COUNTER or one.metric.endswith((".sum", ".count")):
                rate = one.value / (seconds or ROWS * EVERY_S) if one.total else one.value
                totals[key] = totals.get(key, 0.0) + (rate * EVERY_S if row else 0.0)
                samples.append(Sample(one.metric, totals[key], t, one.labels))
            else:
                still = one.metric.startswith(("config.", "sched.")) or line.kind == "info"
                moved = 1.0 if still else 1.0 + _JITTER * ((row * 7) % 5 - 2)
                samples.append(Sample(one.metric, one.value * moved, t, one.labels))
    return samples
