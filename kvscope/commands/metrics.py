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
    parser.add_argument("--format", help="text or json (text)")


def run(options: argparse.Namespace) -> int:
    """Print one line a metric or series."""
    from kvscope.commands._options import settings_of, text_or_json

    as_json = text_or_json(settings_of(options))
    return _catalogue(as_json) if options.target is None else _values(options.target, as_json)


def _catalogue(as_json: bool) -> int:
    import json

    from probes.catalog import CATALOG
    from probes.openmetrics import prometheus_name

    rows = []
    for metric in CATALOG.values():
        name = f"{metric.name} {{{', '.join(metric.labels)}}}" if metric.labels else metric.name
        exposed = prometheus_name(metric)
        told = {"name": metric.name, "kind": metric.kind, "unit": metric.unit, "help": metric.help}
        rows.append(told | {"labels": list(metric.labels), "exposed": exposed})
        if not as_json:
            print(f"{name:<34} {metric.kind:<12} {metric.unit or '-':<9} {metric.help}  [{exposed}]")
    if as_json:
        print(json.dumps({"schema": 1, "metrics": rows}))
    return 0


def _values(target: str, as_json: bool) -> int:
    import json
    from contextlib import closing

    from kvscope.sources import open_target
    from probes.catalog import metric_of

    with closing(open_target(target)) as source:
        latest = {(sample.metric, sample.labels): sample.value for sample in source.poll().samples}
    rows = []
    for (name, labels), value in sorted(latest.items()):
        metric = metric_of(name)
        unit = metric.unit if metric else ""
        where = "{" + ",".join(f"{key}={text}" for key, text in labels) + "}" if labels else ""
        rows.append({"name": name, "labels": dict(labels), "value": value, "unit": unit})
        if not as_json:
            print(f"{name + where:<44} {value:>18.6g} {unit}")
    if as_json:
        print(json.dumps({"schema": 1, "values": rows}))
    return 0
