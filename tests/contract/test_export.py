"""Exported rules: accepted by promtool, and firing on the captures on which kvscope finds the same, by Prometheus.

promtool comes with Debian's prometheus package; without it these tests are skipped.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvscope.diagnose import diagnose
from kvscope.export import names, render
from kvscope.export._rules import PageNames, alerts
from kvscope.playbook import load_all
from kvscope.signals import names as signal_names
from kvscope.signals.promql import promql
from kvscope.sources import maps, open_target
from kvscope.store import Store

PLAYBOOKS = load_all()
ENGINES = ("vllm", "sglang", "kvscope")
PROMTOOL = shutil.which("promtool")
SHIPPED = Path(__file__).parents[2] / "samples" / "captures"
ELSEWHERE = os.environ.get("KVSCOPE_CAPTURES", "")
FOLDERS = [
    path.parent
    for root in (SHIPPED, *([Path(ELSEWHERE)] if ELSEWHERE else []))
    for path in sorted(root.glob("*/pages.jsonl.gz"))
]
AFTER_THE_LOAD_S = 8
"""Captures end with some idle seconds; an alert is asked for before them."""
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian package prometheus)")


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    assert PROMTOOL is not None
    return subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, check=False, timeout=60)


@needs_promtool
@pytest.mark.parametrize("engine", ENGINES)
def test_promtool_accepts_the_rules_of_every_engine(tmp_path: Path, engine: str) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(render("prometheus", PLAYBOOKS, engine), encoding="utf-8")
    checked = promtool("check", "rules", str(path))
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("engine", ENGINES)
def test_every_playbook_is_exported_or_said_to_be_left_out_with_the_reason(engine: str) -> None:
    found, left = alerts(PLAYBOOKS, engine)
    assert {one.rule.id for one in found} | set(left) == {rule.id for rule in PLAYBOOKS}
    assert all(left.values())
    text = render("prometheus", PLAYBOOKS, engine)
    assert all(f"# left out: {rule}: " in text for rule in left)


def test_expressions_read_only_what_the_engines_map_knows() -> None:
    for engine in ENGINES:
        known = {entry.name for entry in maps.load(engine).MAP}
        for signal in signal_names():
            said = promql(signal, PageNames(engine)) or ""
            for name in re.findall(r"(?:vllm:|sglang:|kvscope_)\w+", said):
                assert (
                    name in known or name.removesuffix("_sum").removesuffix("_count").removesuffix("_bucket") in known
                )


def test_the_dashboard_is_json_whose_panels_ask_for_what_playbooks_read() -> None:
    board = json.loads(render("grafana", PLAYBOOKS, "vllm"))
    titles = {panel["title"] for panel in board["panels"]}
    assert {"running_requests", "kv_usage_ratio", "generation_tokens_per_s"} <= titles
    assert titles <= {check.signal for rule in PLAYBOOKS for check in rule.symptom} | {
        signal for rule in PLAYBOOKS for signal in rule.signals()
    }
    assert all(panel["targets"][0]["expr"] and panel["description"] for panel in board["panels"])
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
    assert len(set(places)) == len(places)
    assert names() == ("grafana", "prometheus")


def pages(folder: Path) -> Iterator[tuple[float, str]]:
    """The log as it was scraped, not as it was understood."""
    with gzip.open(folder / "pages.jsonl.gz", "rt", encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            if row.get("text"):
                yield float(row["t"]), row["text"]


def series_of(folder: Path, wanted: set[str]) -> tuple[list[dict[str, str]], int]:
    """Return the capture as promtool's input series, one value a second, and how many seconds it lasts."""
    columns: dict[str, dict[int, float]] = {}
    first = last = None
    for t, text in pages(folder):
        first = t if first is None else first
        last = t
        for line in text.splitlines():
            name = re.match(r"[\w:]+", line)
            if name and name[0] in wanted:
                labels, _, value = line[name.end() :].rpartition(" ")
                inner = labels.strip("{}")
                key = f'{name[0]}{{instance="e"{"," + inner if inner else ""}}}'
                columns.setdefault(key, {})[round(t - first)] = float(value)
    assert first is not None
    assert last is not None
    length = round(last - first) + 1
    rows = []
    for key, values in columns.items():
        told = " ".join(f"{values[t]:.10g}" if t in values else "_" for t in range(length))
        rows.append({"series": key, "values": told})
    return rows, length


def found_on(folder: Path) -> set[str]:
    """The rules by which kvscope itself finds something on a capture."""
    store = Store()
    with closing(open_target(str(folder / "pages.jsonl.gz"))) as source:
        store.add(source.poll().samples)
        found = diagnose(store, PLAYBOOKS, source.describe())
    return {one.id for one in found.findings if one.verdict in ("likely", "possible")}


@needs_promtool
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_prometheus_fires_on_the_captures_on_which_kvscope_finds_the_same(tmp_path: Path, folder: Path) -> None:
    rules = tmp_path / "rules.yaml"
    text = render("prometheus", PLAYBOOKS, "vllm")
    rules.write_text(text, encoding="utf-8")
    wanted = set(re.findall(r"vllm:\w+", text))
    rows, length = series_of(folder, wanted)
    exported = {one.rule.id for one in alerts(PLAYBOOKS, "vllm")[0]}
    expected = sorted(found_on(folder) & exported)
    samples = [{"labels": f'{{playbook="{one}"}}', "value": 1} for one in expected]
    test: dict[str, Any] = {
        "rule_files": [str(rules)],
        "evaluation_interval": "5s",
        "tests": [
            {
                "interval": "1s",
                "input_series": rows,
                "promql_expr_test": [
                    {
                        "expr": 'count by (playbook) (ALERTS{alertstate="firing"})',
                        "eval_time": f"{length - AFTER_THE_LOAD_S}s",
                        "exp_samples": samples,
                    }
                ],
            }
        ],
    }
    path = tmp_path / "test.yaml"
    path.write_text(yaml.safe_dump(test, width=10**9), encoding="utf-8")
    checked = promtool("test", "rules", str(path))
    assert checked.returncode == 0, checked.stdout[-2000:] + checked.stderr[-2000:]


def test_a_source_is_opened_for_every_capture() -> None:
    for folder in FOLDERS[:2]:
        with closing(open_target(str(folder / "pages.jsonl.gz"))) as source:
            assert source.describe().engine == "vllm"
