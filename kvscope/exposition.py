"""Canonical samples as one OpenMetrics page: names, kinds and help from the catalogue, whatever engine they came from.

Counters and gauges show their newest value. An observation that arrives one value a request is counted into a
histogram here; one that arrives as the buckets of an engine's page is passed on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from probes.catalog import CATALOG, Metric, metric_of
from probes.openmetrics import Histogram, bound_text, head, labels_text, prometheus_name
from probes.sample import Labels, Sample

STALE_S = 30.0
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
COUNTS = tuple(float(1 << power) for power in range(0, 24, 2))


class Exposition:
    """Takes samples, gives the page.

    A series that got nothing for ``stale_s`` while others did is left out: what a dead replica said last is no value of
    now.
    """

    def __init__(self, stale_s: float = STALE_S) -> None:
        self._stale_s = stale_s
        self._newest: dict[str, dict[Labels, float]] = {}
        self._heard: dict[tuple[str, Labels], float] = {}
        self._now_s = -math.inf
        self._counts: dict[str, dict[Labels, Histogram]] = {}

    def add(self, samples: Iterable[Sample]) -> None:
        """Remember the newest value of every series; a metric that the catalogue does not have is left out."""
        for metric, value, t, labels in samples:
            line = metric_of(metric)
            if line is None or value != value or line.kind == "info":
                continue
            if line.kind == "observation" and metric == line.name:
                bounds = SECONDS if line.unit == "s" else COUNTS
                self._counts.setdefault(metric, {}).setdefault(labels, Histogram(bounds)).observe(value)
            else:
                self._newest.setdefault(metric, {})[labels] = value
                self._heard[metric, labels] = t
                self._now_s = max(self._now_s, t)
        self._forget()

    def _forget(self) -> None:
        """Leave out what is stale; a value that never changes is sent at every poll, so its silence is the target's."""
        for metric, labels in [key for key, t in self._heard.items() if t < self._now_s - self._stale_s]:
            del self._heard[metric, labels]
            self._newest[metric].pop(labels, None)

    def render(self, info: Mapping[str, str]) -> str:
        """Return the page; ``info`` says what is running."""
        lines = [line for metric in CATALOG.values() for line in self._family(metric)]
        known = CATALOG["engine.info"]
        family = prometheus_name(known)
        about = labels_text(tuple(sorted((key, info.get(key, "")) for key in known.labels)))
        suffix = "" if family.endswith("_info") else "_info"
        lines += [f"# TYPE {family.removesuffix('_info')} info", f"{family}{suffix}{about} 1", "# EOF"]
        return "\n".join(lines) + "\n"

    def _family(self, metric: Metric) -> Iterator[str]:
        if metric.kind == "info":
            return
        name = prometheus_name(metric)
        if metric.kind == "observation":
            found = [*self._counted(metric.name), *self._passed_on(metric.name)]
            body = [f"{name}{suffix}{labels_text(labels)} {value!r}" for suffix, labels, value in found]
            kind = "histogram" if any(suffix == "_bucket" for suffix, _, _ in found) else "summary"
        else:
            body = [
                f"{name}{labels_text(labels)} {value!r}" for labels, value in self._newest.get(metric.name, {}).items()
            ]
            kind = metric.kind
        if body:
            yield from head(metric, kind)
            yield from body

    def _counted(self, name: str) -> Iterator[tuple[str, Labels, float]]:
        for labels, counts in self._counts.get(name, {}).items():
            for bound, seen in counts.buckets():
                yield "_bucket", (*labels, ("le", bound)), seen
            yield "_count", labels, counts.count
            yield "_sum", labels, counts.total

    def _passed_on(self, name: str) -> Iterator[tuple[str, Labels, float]]:
        """Return the lines of a page's histogram, one label set after another, bounds rising."""
        if name in self._counts:
            return
        by_rest: dict[Labels, list[tuple[float, float]]] = {}
        for labels, value in self._newest.get(f"{name}.bucket", {}).items():
            rest = tuple(pair for pair in labels if pair[0] != "le")
            by_rest.setdefault(rest, []).append((float(dict(labels).get("le", "inf")), value))
        sums, counts = self._newest.get(f"{name}.sum", {}), self._newest.get(f"{name}.count", {})
        for rest in dict.fromkeys([*by_rest, *counts]):
            buckets = sorted(dict(by_rest.get(rest, ())).items())
            if buckets and buckets[-1][0] != float("inf"):
                buckets.append((float("inf"), counts.get(rest, buckets[-1][1])))
            for bound, value in buckets:
                yield "_bucket", (*rest, ("le", bound_text(bound))), value
            if rest in counts or buckets:
                yield "_count", rest, buckets[-1][1] if buckets else counts[rest]
            if rest in sums:
                yield "_sum", rest, sums[rest]
