"""List the canonical metrics, or what a target reports of them now.

Without TARGET: the catalogue (name, kind, unit, help, Prometheus name). With TARGET: the latest value of every series.
"""

from __future__ import annotations

import argparse

GROUP = "rules and monitoring"
EXAMPLES = ("kvscope metrics http://localhost:8000",)


def configure(parser: argparse.ArgumentParser) -> None:
    """TARGET is optional."""
    parser.add_argument("target", nargs="?", metavar="TARGET", help="read this engine instead of listing the catalogue")


def run(options: argparse.Namespace) -> int:
    """Print one line a metric or series."""
    return _catalogue() if options.target is None else _values(options.target)


def _catalogue() -> int:
    from probes.catalog import CATALOG
    from probes.openmetrics import prometheus_name

    for metric in CATALOG.values():
        name = f"{metric.name} {{{', '.join(metric.labels)}}}" if metric.labels else metric.name
        exposed = prometheus_name(metric)
        print(f"{name:<34} {metric.kind:<12} {metric.unit or '-':<9} {metric.help}  [{exposed}]")
    return 0


def _values(target: str) -> int:
    from contextlib import closing

    from kvscope.sources import open_target
    from probes.catalog import metric_of

    with closing(open_target(target)) as source:
        latest = {(sample.metric, sample.labels): sample.value for sample in source.poll().samples}
    for (name, labels), value in sorted(latest.items()):
        metric = metric_of(name)
        where = "{" + ",".join(f"{key}={text}" for key, text in labels) + "}" if labels else ""
        print(f"{name + where:<44} {value:>18.6g} {metric.unit if metric else ''}")
    return 0
