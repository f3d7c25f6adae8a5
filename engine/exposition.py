"""The engine's `/metrics` page in OpenMetrics text, from the same row the flight recorder writes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping

from probes.catalog import CATALOG, Metric, metric_of, prometheus_name

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
LATENCIES = ("latency.ttft", "latency.tpot", "latency.e2e", "sched.queue_time")


class Histogram:
    """Counts per bucket, upper bounds in seconds; a value equal to a bound belongs to it."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value; NaN (a latency that does not exist, as TPOT of one token) is not counted."""
        if value == value:
            self.counts[bisect_left(BUCKETS, value)] += 1
            self.total += value


def render(row: Mapping[str, float], histograms: Mapping[str, Histogram], info: Mapping[str, str]) -> str:
    """Return the page for a row by column name (``name`` or ``name[layer]``)."""
    families: dict[str, list[str]] = {}
    for column, value in row.items():
        name, _, layer = column.partition("[")
        metric = metric_of(name)
        if metric is None:
            continue
        labels = f'{{layer="{layer[:-1]}"}}' if layer else ""
        families.setdefault(name, []).append(f"{prometheus_name(metric)}{labels} {value!r}")
    lines = [line for name, samples in families.items() for line in (*_head(CATALOG[name]), *samples)]
    for name, histogram in histograms.items():
        lines += _histogram(CATALOG[name], histogram)
    pairs = ",".join(f'{key}="{_escape(value)}"' for key, value in sorted(info.items()))
    lines += ["# TYPE kvscope_engine info", f"kvscope_engine_info{{{pairs}}} 1", "# EOF"]
    return "\n".join(lines) + "\n"


def _head(metric: Metric, kind: str | None = None) -> Iterable[str]:
    # A value that is an observation per step is exposed as the last one seen.
    kind = kind or ("counter" if metric.kind == "counter" else "gauge")
    family = prometheus_name(metric).removesuffix("_total")
    return (f"# TYPE {family} {kind}", f"# HELP {family} {_escape(metric.help)}")


def _histogram(metric: Metric, histogram: Histogram) -> list[str]:
    name, lines, seen = prometheus_name(metric), list(_head(metric, "histogram")), 0
    for bound, count in zip((*BUCKETS, float("inf")), histogram.counts, strict=True):
        seen += count
        lines.append(f'{name}_bucket{{le="{"+Inf" if bound == float("inf") else bound}"}} {seen}')
    return [*lines, f"{name}_sum {histogram.total!r}", f"{name}_count {seen}"]


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
