"""Our own engine's page: every name follows from the catalogue, so this map is computed, not listed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kvscope.sources.mapping import Derived, Entry, PageKind
from probes.catalog import CATALOG, Metric
from probes.openmetrics import prometheus_name

ENGINE = "kvscope"
ROLE = "engine"
EXPECTS = "names starting with kvscope_"
IDENTITY: dict[str, str] = {}
VERSION_PATH = ""
FLAGS = ()
_KINDS: dict[str, PageKind] = {"counter": "counter", "gauge": "gauge", "observation": "histogram", "info": "info"}


def _entry(metric: Metric) -> Entry:
    return Entry(
        prometheus_name(metric),
        metric.name if metric.kind != "info" else "",
        _KINDS[metric.kind],
        metric.unit,
        combine="mean" if metric.kind == "gauge" and metric.unit == "ratio" else "sum",
        keep=metric.labels,
    )


MAP = tuple(_entry(metric) for metric in CATALOG.values())


def detect(names: Collection[str]) -> bool:
    return any(name.startswith("kvscope_") for name in names)


def derive(
    infos: Mapping[str, Sequence[Mapping[str, str]]], values: Mapping[str, float], flags: Mapping[str, str]
) -> Derived:
    """Take the tags from ``kvscope_engine_info``."""
    found = infos.get(prometheus_name(CATALOG["engine.info"]), ())
    return Derived(tags=dict(found[0]) if found else {})
