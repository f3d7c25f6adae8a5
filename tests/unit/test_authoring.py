"""Writing playbooks: the published schema, the file to begin with, the proof, and the distance to firing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvscope.authoring import json_schema, new, prove
from kvscope.cli import run
from kvscope.errors import UsageError
from kvscope.playbook import load_all, load_playbook

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "docs" / "playbook.schema.json"
PLAYBOOKS = load_all()


def fits(value: Any, schema: dict[str, Any], whole: dict[str, Any]) -> bool:
    """The part of JSON Schema that the published one uses."""
    import re

    if "$ref" in schema:
        return fits(value, whole["$defs"][schema["$ref"].rpartition("/")[2]], whole)
    if "anyOf" in schema and not any(fits(value, one, whole) for one in schema["anyOf"]):
        return False
    kinds = {"string": str, "number": (int, float), "boolean": bool, "array": list, "object": dict}
    wanted = schema.get("type", [])
    if wanted and not any(isinstance(value, kinds[one]) for one in ([wanted] if isinstance(wanted, str) else wanted)):
        return False
    if "const" in schema and value != schema["const"]:
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if "pattern" in schema and isinstance(value, str) and not re.search(schema["pattern"], value):
        return False
    if isinstance(value, list):
        return len(value) >= schema.get("minItems", 0) and all(
            fits(one, schema.get("items", {}), whole) for one in value
        )
    if isinstance(value, dict):
        return _fits_object(value, schema, whole)
    return True


def _fits_object(value: dict[str, Any], schema: dict[str, Any], whole: dict[str, Any]) -> bool:
    known, more = schema.get("properties", {}), schema.get("additionalProperties", True)
    if not set(schema.get("required", ())) <= set(value) or len(value) < schema.get("minProperties", 0):
        return False
    for key, inner in value.items():
        if key in known:
            if not fits(inner, known[key], whole):
                return False
        elif more is False or (isinstance(more, dict) and not fits(inner, more, whole)):
            return False
    return True


def changed(**parts: Any) -> dict[str, Any]:
    """A good playbook with some keys replaced; None takes one away."""
    whole = yaml.safe_load(PLAYBOOKS[0].path.read_text(encoding="utf-8"))
    return {key: value for key, value in {**whole, **parts}.items() if value is not None}


class TestTheSchema:
    def test_is_published_as_the_loader_has_it(self) -> None:
        assert json.loads(PUBLISHED.read_text(encoding="utf-8")) == json_schema(), "kvscope playbooks schema > docs/…"

    @pytest.mark.parametrize("rule", PLAYBOOKS, ids=lambda rule: rule.id)
    def test_accepts_every_playbook_that_ships(self, rule: Any) -> None:
        assert fits(yaml.safe_load(rule.path.read_text(encoding="utf-8")), json_schema(), json_schema())

    @pytest.mark.parametrize(
        "broken",
        [
            {"sympton": {}},
            {"schema": 2},
            {"status": "good"},
            {"title": None},
            {"triage": "luck"},
            {"symptom": {}},
            {"symptom": {"a": {"signal": "no_such", "is": ">= 1"}}},
            {"symptom": {"a": {"signal": "waiting_requests", "is": "about 1"}}},
            {"symptom": {"a": {"signal": "waiting_requests", "change": "up", "within": "5%"}}},
            {"cause": {"says": "x", "slug": "Not a slug", "checks": {}}},
            {"gain": {"kind": "magic", "reads": "waiting_requests", "of": "x"}},
            {"rivals": {"a": {"says": "x"}}},
            {"experiment": {"change": "x"}},
            {"fix": [{"do": "x", "vlm": "--flag"}]},
            {"tests": {"maybe": "x"}},
            {"thresholds": {"a": {"source": "guess", "says": "x"}}},
        ],
    )
    def test_refuses_what_the_loader_refuses(self, broken: dict[str, Any], tmp_path: Path) -> None:
        whole = changed(id="broken", **broken)
        path = tmp_path / "broken.yaml"
        path.write_text(yaml.safe_dump(whole), encoding="utf-8")
        assert not fits(whole, json_schema(), json_schema())
        with pytest.raises(UsageError):
            load_playbook(path)


class TestAuthoring:
    def test_a_new_playbook_is_good_as_written(self, tmp_path: Path) -> None:
        assert "written" in new(tmp_path / "my-rule.yaml")
        assert load_playbook(tmp_path / "my-rule.yaml").cause.slug == "my_rule"
        with pytest.raises(UsageError, match="is there already"):
            new(tmp_path / "my-rule.yaml")
        with pytest.raises(UsageError, match=r"expected a name such as my-rule\.yaml"):
            new(tmp_path / "my rule.txt")

    def test_a_proof_names_the_verdict_that_came_instead(self, tmp_path: Path) -> None:
        rule = next(rule for rule in PLAYBOOKS if rule.id == "kv-short-with-queue")
        assert all(good for good, _ in prove(rule, PLAYBOOKS))
        text = rule.path.read_text(encoding="utf-8")
        wrong = text.replace("kv-short-with-queue.likely.jsonl", "kv-short-with-queue.silent.jsonl")
        folder = tmp_path / "playbooks"
        folder.mkdir()
        (folder / "kv-short-with-queue.yaml").write_text(wrong.replace("samples/", f"{ROOT}/samples/"))
        told = prove(load_playbook(folder / "kv-short-with-queue.yaml"), PLAYBOOKS)
        assert next(line for good, line in told if not good).endswith("silent, expected likely")

    def test_a_recording_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        new(tmp_path / "my-rule.yaml")
        with pytest.raises(UsageError, match=r"no recording 'my-rule\.likely\.jsonl' beside the playbook"):
            prove(load_playbook(tmp_path / "my-rule.yaml"), PLAYBOOKS)


class TestTheCommand:
    def test_explains_how_far_a_rule_is_from_firing(self, capsys: pytest.CaptureFixture[str]) -> None:
        target = ROOT / "samples/recordings/kv-short-with-queue.silent.jsonl"
        assert run(["playbooks", "explain", "kv-short-with-queue", str(target)]) == 0
        told = capsys.readouterr().out
        assert "symptom (all)" in told
        assert "away" in told
        assert "fires" in told

    def test_a_metric_that_nobody_reports_is_named_with_what_would_report_it(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        target = ROOT / "samples/recordings/kv-short-with-queue.possible.jsonl"
        assert run(["playbooks", "explain", "prefix-pool-too-small", str(target)]) == 0
        assert "would be measured by: " in capsys.readouterr().out

    def test_tests_exit_1_when_a_verdict_differs_and_0_when_none_does(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["playbooks", "test", "kv-copied-on-append"]) == 0
        assert "ok   kv-copied-on-append" in capsys.readouterr().out

    @pytest.mark.parametrize(
        "words",
        [["explain", "one"], ["export"], ["export", "--prometheus", "--engine", "vlm"], ["new"], ["show", "nothing"]],
    )
    def test_a_mistake_is_one_line_and_exit_code_2(self, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["playbooks", *words]) == 2
        assert len(capsys.readouterr().err.strip().splitlines()) == 1

    def test_exports_rules_and_a_dashboard_on_stdout(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["playbooks", "export", "--prometheus"]) == 0
        assert yaml.safe_load(capsys.readouterr().out)["groups"]
        assert run(["playbooks", "export", "--grafana", "--engine", "sglang"]) == 0
        assert json.loads(capsys.readouterr().out)["panels"]
