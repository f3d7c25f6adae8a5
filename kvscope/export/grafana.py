"""A Grafana dashboard: the signals that playbooks read, with the bounds that make them fire."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from kvscope import signals
from kvscope.checks import Check
from kvscope.export._rules import PageNames, alerts
from kvscope.playbook_schema import Playbook
from kvscope.signals.promql import promql

_UNITS = {"s": "s", "B": "bytes", "B/s": "Bps", "ratio": "percentunit", "1/s": "ops"}
_WIDE, _HIGH = 12, 8


def render(playbooks: Sequence[Playbook], engine: str) -> str:
    """Return the dashboard as JSON; it asks the engine's own series, so that no rules need to be loaded."""
    found, _ = alerts(playbooks, engine)
    names = PageNames(engine)
    checks: dict[str, list[tuple[Playbook, Check]]] = {}
    for alert in found:
        for check in alert.rule.checks():
            if check.signal in alert.signals and check.kind == "is":
                checks.setdefault(check.signal, []).append((alert.rule, check))
    panels = [_panel(at, signal, said, names) for at, (signal, said) in enumerate(checks.items())]
    board = {
        "title": f"kvscope: {engine}",
        "uid": f"kvscope-{engine}".replace(".", "-"),
        "tags": ["kvscope"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_source()]},
        "panels": panels,
    }
    return json.dumps(board, indent=1, ensure_ascii=False)


def _source() -> dict[str, Any]:
    return {"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"}


def _panel(at: int, signal: str, said: list[tuple[Playbook, Check]], names: PageNames) -> dict[str, Any]:
    unit, text, _ = signals.describe(signal)
    bounds = sorted({check.threshold for _, check in said})
    steps = [{"color": "green", "value": None}, *({"color": "orange", "value": bound} for bound in bounds)]
    reasons = "\n".join(f"- {rule.id}: {check.says}" for rule, check in said)
    return {
        "id": at + 1,
        "type": "timeseries",
        "title": signal,
        "description": f"{text}\n\n{reasons}",
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "gridPos": {"x": _WIDE * (at % 2), "y": _HIGH * (at // 2), "w": _WIDE, "h": _HIGH},
        "targets": [{"refId": "A", "expr": promql(signal, names), "legendFormat": "{{instance}}"}],
        "fieldConfig": {
            "defaults": {
                "unit": _UNITS.get(unit, "short"),
                "thresholds": {"mode": "absolute", "steps": steps},
                "custom": {"thresholdsStyle": {"mode": "dashed"}},
            },
            "overrides": [],
        },
    }
