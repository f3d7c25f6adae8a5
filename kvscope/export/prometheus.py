"""Recording and alerting rules: each signal once, each playbook that can be said as an alert."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from kvscope.export._rules import Alert, PageNames, alerts, recorded
from kvscope.playbook_schema import Playbook
from kvscope.signals.promql import WINDOW, promql

_FOR = "30s"
"""Short: each signal is a mean over the window already."""


def render(playbooks: Sequence[Playbook], engine: str) -> str:
    """Return a rule file; what is left out is said in its first lines."""
    found, left = alerts(playbooks, engine)
    names = PageNames(engine)
    signals = list(dict.fromkeys(signal for alert in found for signal in alert.signals))
    groups = [
        {"name": f"kvscope signals ({engine})", "rules": [_record(signal, names) for signal in signals]},
        {"name": f"kvscope playbooks ({engine})", "rules": [_alert(alert) for alert in found]},
    ]
    head = [
        f"# kvscope playbooks for {engine}, over {WINDOW}. An alert compares values; kvscope compares intervals.",
        *(f"# left out: {rule}: {why}" for rule, why in sorted(left.items())),
    ]
    return "\n".join(head) + "\n" + yaml.safe_dump({"groups": groups}, sort_keys=False, width=110, allow_unicode=True)


def _record(signal: str, names: PageNames) -> dict[str, Any]:
    return {"record": recorded(signal), "expr": promql(signal, names)}


def _alert(alert: Alert) -> dict[str, Any]:
    rule = alert.rule
    open_ = f" Not excluded here: {'; '.join(alert.open_rivals)}." if alert.open_rivals else ""
    return {
        "alert": "".join(word.capitalize() for word in rule.id.split("-")),
        "expr": alert.condition,
        "for": _FOR,
        "labels": {"severity": "warning", "playbook": rule.id, "cause": rule.cause.slug},
        "annotations": {
            "summary": f"{rule.title} on {{{{ $labels.instance }}}}",
            "description": f"{rule.cause.says.capitalize()}.{open_}",
            "next": rule.experiment.change if rule.experiment else "",
        },
    }
