"""The words of an OpenMetrics page: metric names, family heads, labels and histogram buckets, from the catalogue."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from probes.catalog import COUNTER, Metric
from probes.sample import Labels

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
INFINITE = "+Inf"
_UNIT_SUFFIX = {"s": "_seconds", "B": "_bytes", "B/s": "_bytes_per_second", "ratio": "_ratio", "W": "_watts"}


def prometheus_name(metric: Metric) -> str:
    """Return the exposition name: dots to underscores, the unit as suffix, ``_total`` on counters."""
    name = "kvscope_" + metric.name.replace(".", "_")
    suffix = _UNIT_SUFFIX.get(metric.unit, "")
    if metric.unit == "s":
        name = name.removesuffix("_time")
    if suffix and suffix[1:] not in name.split("_"):
        name += suffix
    return name + "_total" if metric.kind == COUNTER else name


def head(metric: Metric, kind: str) -> tuple[str, str]:
    """Return the two lines that stand before a family's samples; ``kind`` is OpenMetrics' word for it."""
    family = prometheus_name(metric).removesuffix("_total")
    return f"# TYPE {family} {kind}", f"# HELP {family} {escape(metric.help)}"


def labels_text(pairs: Labels) -> str:
    """Return ``{key="value",…}``, or nothing where there are no labels."""
    return "{" + ",".join(f'{key}="{escape(value)}"' for key, value in pairs) + "}" if pairs else ""


def bound_text(bound: float) -> str:
    """Return a bucket's bound in the one spelling OpenMetrics allows."""
    return INFINITE if bound == float("inf") else repr(float(bound))


def escape(text: str) -> str:
    """Return text as it may stand between quotes."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


class Histogram:
    """How many values lay at or below each of ``bounds`` (rising), and their sum."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value; NaN (a latency that does not exist, as TPOT of one token) is not counted."""
        if value == value:
            self.counts[bisect_left(self.bounds, value)] += 1
            self.total += value

    @property
    def count(self) -> int:
        """Values counted."""
        return sum(self.counts)

    def buckets(self) -> Iterator[tuple[str, int]]:
        """Return (bound as text, values at or below it), the infinite one last."""
        seen = 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            seen += count
            yield bound_text(bound), seen
