"""Stated figures as a target: each run stands for a minute in one state, and says that its errors are not known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from kvscope.sources.source import Description, Mark, Poll
from kvscope.sources.stated.arms import arms, figures_of_arm, said_by_names
from kvscope.sources.stated.figure import Figure, Stated, aliases, unknown_notice
from probes.catalog import COUNTER, metric_of
from probes.sample import Labels, Sample, labels_of

ROWS, EVERY_S = 30, 2.0
NOTE = "figures as stated: one number stands for a run, and its error is not known"


class StatedSource:
    """Gives the runs that a document tells of, the earlier first; it ends at once."""

    def __init__(self, stated: Stated, target: Path, when_s: float) -> None:
        self._stated, self._target = stated, target
        before, after = arms(stated.figures, stated.report)
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
        samples.append(Sample("config.stated", 1.0, t - EVERY_S))
        samples.append(Sample("engine.info", 1.0, t - EVERY_S, labels_of(engine=self._stated.engine)))
        return Poll(samples, tuple(marks), tuple(self._notices()), ended=True)

    def close(self) -> None:
        """Nothing is held open."""

    def _runs(self) -> Iterator[tuple[str, list[Figure]]]:
        usual = aliases()["engine_settings"].get(self._stated.engine, {})
        settings = [Figure(name, name, (), float(value)) for name, value in (usual | self._stated.settings).items()]
        ratios = self._ratios()
        if ratios and len(self._arms) < 2:
            yield "before", settings + [Figure(name, name, (), 1.0) for name in ratios]
        for index, arm in enumerate(self._arms):
            name = ("before", "after")[index] if len(self._arms) > 1 else "after"
            last = index + 1 == len(self._arms)
            own = [Figure(name, name, (), value) for name, value in ratios.items()] if last else []
            other = self._arms[1 - index] if len(self._arms) > 1 else ""
            said = said_by_names(self._stated, arm, other)
            mine = [*settings, *figures_of_arm(self._stated, arm, other), *own]
            mine = [one for one in mine if one.metric not in said]
            yield name, mine + [Figure(metric, metric, (), value) for metric, value in said.items()]

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
                samples.append(Sample(one.metric, one.value, t, one.labels))
    return samples
