"""The engine's `/metrics` page in OpenMetrics text, from the same row the flight recorder writes."""

from __future__ import annotations

from collections.abc import Mapping

from probes.catalog import CATALOG, Metric, metric_of
from probes.openmetrics import Histogram, head, labels_text, prometheus_name

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
LATENCIES = ("latency.ttft", "latency.tpot", "latency.e2e", "sched.queue_time")


def latency_histograms() -> dict[str, Histogram]:
    """An empty histogram of seconds for each of ``LATENCIES``."""
    return {name: Histogram(BUCKETS) for name in LATENCIES}


def render(row: Mapping[str, float], histograms: Mapping[str, Histogram], info: Mapping[str, str]) -> str:
    """Return the page for a row by column name (``name`` or ``name[layer]``)."""
    families: dict[str, list[str]] = {}
    for column, value in row.items():
        name, _, layer = column.partition("[")
        metric = metric_of(name)
        if metric is None:
            continue
        labels = labels_text((("layer", layer[:-1]),)) if layer else ""
        families.setdefault(name, []).append(f"{prometheus_name(metric)}{labels} {value!r}")
    lines = []
    for name, samples in families.items():
        lines += [*head(CATALOG[name], _kind(CATALOG[name])), *samples]
    for name, histogram in histograms.items():
        lines += _histogram(CATALOG[name], histogram)
    about = labels_text(tuple(sorted(info.items())))
    lines += ["# TYPE kvscope_engine info", f"kvscope_engine_info{about} 1", "# EOF"]
    return "\n".join(lines) + "\n"


def _kind(metric: Metric) -> str:
    # A value that is an observation per step is exposed as the last one seen.
    return "counter" if metric.kind == "counter" else "gauge"


def _histogram(metric: Metric, histogram: Histogram) -> list[str]:
    name = prometheus_name(metric)
    buckets = [f"{name}_bucket{labels_text((('le', bound),))} {seen}" for bound, seen in histogram.buckets()]
    tail = (f"{name}_sum {histogram.total!r}", f"{name}_count {histogram.count}")
    return [*head(metric, "histogram"), *buckets, *tail]
