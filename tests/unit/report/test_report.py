"""A report says what was found, how it is known, what else it could be, and what could not be known.

The files in ``golden`` are what it should read like. After a wanted change write them anew with
``KVSCOPE_WRITE_GOLDEN=1 pytest tests/unit/report`` and read the difference.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kvscope import report
from kvscope.errors import EXIT_FINDING, EXIT_NO_DATA, EXIT_SOURCE, UsageError
from kvscope.finding import Coverage, Diagnosis, Evidence, Experiment, Verdict
from kvscope.watch import exit_code
from tests.unit.report.diagnoses import ACCESS, BLIND, CASES, FOUND, FULL, MEMORY, SUFFIX, UNKNOWN

GOLDEN = Path(__file__).parent / "golden"


def golden(name: str, text: str) -> str:
    path = GOLDEN / name
    if os.environ.get("KVSCOPE_WRITE_GOLDEN"):
        path.write_text(text + "\n")
    return path.read_text().removesuffix("\n")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("form", report.names())
def test_a_report_reads_as_agreed(form: str, case: str) -> None:
    options = {"width": 100} if form == "text" else {}
    text = report.render(form, CASES[case], **options)
    assert text == golden(f"{case}.{SUFFIX[form]}", text)


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("case", CASES)
def test_text_keeps_within_its_width(case: str, width: int) -> None:
    text = report.render("text", CASES[case], width=width)
    assert [line for line in text.split("\n") if len(line) > width] == []


def test_every_number_has_its_interval_its_source_and_its_batches() -> None:
    line = next(line for line in report.render("text", FULL, width=140).split("\n") if " access_share" in line)
    assert "5 → 41.2 % ± 0.6" in line
    assert "+36.2 pp ± 0.6" in line
    assert "[measured: step rows, 20 batches]" in line


def test_colour_is_there_only_when_asked_and_never_under_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b" not in report.render("text", FULL, width=100)
    assert "\x1b[1;33mPOSSIBLE\x1b[0m" in report.render("text", FULL, width=100, colour=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in report.render("text", FULL, width=100, colour=True)


def test_what_could_not_be_known_is_never_called_well() -> None:
    for form in report.names():
        text = report.render(form, BLIND, **({"everything": True} if form == "text" else {})).lower()
        assert "context_tokens_mean" in text
        assert not re.search(r"\b(ok|healthy|no problem)\b", text)


def test_the_json_report_has_the_keys_that_scripts_read() -> None:
    found = json.loads(report.render("json", FULL))
    assert {"schema", "source", "segments", "findings", "unknown"} <= found.keys()
    assert found["schema"] == 1
    assert found["segments"][0]["signals"]["access_share"] == {"value": 0.05, "error": 0.002, "unit": "ratio"}
    finding = found["findings"][0]
    wanted = {"id", "title", "verdict", "slug", "evidence", "rivals", "gain", "experiment", "fix", "explains"}
    assert wanted <= finding.keys()
    wanted = {"check", "signal", "answer", "value", "error", "unit", "baseline", "change", "source"}
    assert wanted <= finding["evidence"][0].keys()
    assert {"says", "state", "signal", "value"} <= finding["rivals"][0].keys()
    assert found["unknown"] == [
        {"signal": unknown.signal, "reason": unknown.reason, "remedy": unknown.remedy} for unknown in UNKNOWN
    ]


def test_json_cannot_say_nan_and_says_null() -> None:
    odd = replace(
        FULL, findings=(replace(FOUND, evidence=(replace(MEMORY, value=float("nan"), change=float("inf")),)),)
    )
    evidence = json.loads(report.render("json", odd))["findings"][0]["evidence"][0]
    assert evidence["value"] is None
    assert evidence["change"] is None


def test_markdown_escapes_what_would_break_a_table() -> None:
    odd = replace(FULL, findings=(replace(FOUND, title="a | b <script>"),))
    assert "a \\| b &lt;script&gt;" in report.render("markdown", odd)


def test_a_relative_change_of_a_share_is_told_in_percent_and_a_change_in_points_in_points() -> None:
    from kvscope.wording import change_in

    share = Evidence("c", "s", "", "yes", 0.3, unit="ratio", baseline=0.2, change=0.1, points=True)
    assert change_in(share) == "points"
    assert change_in(replace(share, change=0.5, points=False)) == "relative"
    assert change_in(replace(share, change=None)) == ""


def test_an_unknown_format_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'markdown'"):
        report.get("markdwn")


@pytest.mark.parametrize("name", ["text", "markdown"])
def test_after_an_experiment_its_outcome_stands_where_the_proposal_stood(name: str) -> None:
    outcome = replace(ACCESS, check="cheaper", says="down at least 10pp", value=0.1, baseline=0.74, change=-0.64)
    finding = replace(FOUND, verdict="confirmed", experiment=Experiment("use block kernels", predict=(outcome,)))
    text = report.render(name, replace(FULL, findings=(finding,)))
    assert "tried" in text
    assert "74" in text
    assert "otherwise the cause is refuted" not in text


def test_html_is_one_file_with_its_plots_inside_and_escapes_what_it_is_given() -> None:
    text = report.render("html", replace(FULL, findings=(replace(FOUND, title="a <script> b"),)))
    assert "a &lt;script&gt; b" in text
    assert text.count("<svg") >= 2
    assert not re.search(r"(?:src|href)\s*=\s*[\"']?(?:https?:)?//", text), "nothing is loaded from elsewhere"


def test_html_plots_symptoms_over_time_where_it_has_the_samples() -> None:
    from kvscope.authoring import read_whole
    from kvscope.diagnose import diagnose
    from kvscope.playbook import load_all

    store, about = read_whole(GOLDEN.parents[3] / "samples/recordings/memory-down-throughput-flat.confirmed.cpu.jsonl")
    found = diagnose(store, load_all(), about, "dense", "compressed")
    assert "<polyline" in report.render("html", found, store=store)


def test_sarif_has_a_rule_for_each_result_and_a_level_by_verdict() -> None:
    run = json.loads(report.render("sarif", FULL))["runs"][0]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert [rules[result["ruleIndex"]] for result in run["results"]] == [result["ruleId"] for result in run["results"]]
    assert {result["level"] for result in run["results"]} <= {"error", "warning", "none"}
    assert json.loads(report.render("sarif", BLIND))["runs"][0]["invocations"][0]["toolExecutionNotifications"]


@pytest.mark.parametrize(("fail_on", "failures"), [("possible", True), ("likely", False)])
def test_junit_and_sarif_agree_with_the_exit_code(fail_on: Verdict, failures: bool) -> None:
    from xml.etree import ElementTree

    assert {one.verdict for one in FULL.findings} & {"possible"}
    told = replace(FULL, findings=tuple(one for one in FULL.findings if one.verdict == "possible"))
    suite = ElementTree.fromstring(report.render("junit", told, fail_on=fail_on))
    assert (suite.get("failures") != "0") == failures
    levels = {one["level"] for one in json.loads(report.render("sarif", told, fail_on=fail_on))["runs"][0]["results"]}
    assert ("error" in levels) == failures
    assert (exit_code(told, fail_on) == 1) == failures


def test_junit_counts_what_it_holds() -> None:
    from xml.etree import ElementTree

    for case in CASES.values():
        suite = ElementTree.fromstring(report.render("junit", case))
        assert int(suite.get("tests", "")) == len(suite.findall("testcase"))
        assert int(suite.get("failures", "")) == len(suite.findall("testcase/failure"))
        assert int(suite.get("skipped", "")) == len(suite.findall("testcase/skipped"))


@pytest.mark.parametrize(
    "found", [replace(BLIND, down="no answer"), replace(BLIND, coverage=Coverage(9, 0), findings=())]
)
def test_what_ends_the_command_in_3_or_4_is_no_success_for_ci_either(found: Diagnosis) -> None:
    assert exit_code(found, "confirmed") in (EXIT_SOURCE, EXIT_NO_DATA)
    suite = ElementTree.fromstring(report.render("junit", found))
    assert suite.get("errors") == "1"
    assert suite.find("testcase/error") is not None
    (run,) = json.loads(report.render("sarif", found))["runs"]
    assert run["invocations"][0]["executionSuccessful"] is False


@pytest.mark.parametrize("fail_on", ["likely", "possible", "confirmed"])
@pytest.mark.parametrize("case", CASES)
def test_junit_and_sarif_fail_where_the_command_does(case: str, fail_on: Verdict) -> None:
    found, fails = CASES[case], exit_code(CASES[case], fail_on) == EXIT_FINDING
    suite = ElementTree.fromstring(report.render("junit", found, fail_on=fail_on))
    assert (suite.get("failures") != "0") is fails
    (run,) = json.loads(report.render("sarif", found, fail_on=fail_on))["runs"]
    assert any(one["level"] == "error" for one in run["results"]) is fails
