"""A playbook's author is told file, line, key and the nearest valid name of every mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvscope.checks import Bound, parse_bound, parse_comparison
from kvscope.errors import UsageError
from kvscope.playbook import load_all, load_playbook

RULE = """\
schema: 1
id: rule
title: A rule
status: trial
compare:
  same: [model]
symptom:
  memory: {signal: kv_resident_bytes, change: down, at_least: 15%}
cause:
  slug: some_cause
  says: something
  any:
    large: {signal: access_share, is: ">= 0.30"}
rivals:
  load:
    says: nothing was waiting
    excluded_when: {signal: waiting_requests, is: ">= 1", segment: both}
gain: {kind: remove_share, signal: access_share, of: decode time}
experiment:
  change: one thing
  set: {kernels: block}
  predict:
    faster: {signal: generation_tokens_per_s, change: up, at_least: 25%}
fix:
  - do it
tests:
  likely: some.jsonl
thresholds:
  memory: {source: judgement, says: a guess}
"""


def written(folder: Path, text: str = RULE, name: str = "rule.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_rule_is_read_into_frozen_objects(tmp_path: Path) -> None:
    rule = load_playbook(written(tmp_path))
    assert (rule.id, rule.status, rule.cause.slug) == ("rule", "trial", "some_cause")
    assert rule.symptom[0].bound == Bound(0.15)
    assert rule.symptom[0].says == "down at least 15%"
    assert rule.cause.any[0].threshold == 0.30
    assert rule.rivals[0].excluded_when[0].where == "both"
    assert rule.experiment is not None
    assert rule.experiment.set == (("kernels", "block"),)
    assert rule.tests == (("likely", ("some.jsonl",)),)
    assert rule.signals() == ("kv_resident_bytes", "access_share", "waiting_requests", "generation_tokens_per_s")


def test_a_rival_may_need_several_checks(tmp_path: Path) -> None:
    several = RULE.replace(
        'excluded_when: {signal: waiting_requests, is: ">= 1", segment: both}',
        'excluded_when:\n      - {signal: waiting_requests, is: ">= 1"}\n      - {signal: host_share, is: "<= 25%"}',
    )
    checks = load_playbook(written(tmp_path, several)).rivals[0].excluded_when
    assert [(check.name, check.threshold) for check in checks] == [("load", 1.0), ("load_2", 0.25)]


MISTAKES = [
    ("symptom:", "symptoms:", r"rule.yaml:7: symptoms: unknown key \(did you mean 'symptom'\?\)"),
    (
        "signal: access_share, is",
        "signal: acess_share, is",
        r":13: .*no signal 'acess_share' \(did you mean 'access_sh",
    ),
    (
        "signal: access_share, of",
        "signal: acces_share, of",
        r":18: gain.signal: no signal 'acces_share' \(did you mean",
    ),
    ("change: down", "change: dwon", r":8: symptom.memory.change: 'dwon' \(did you mean 'down'\?\)"),
    ("at_least: 15%", "within: 15%", r":8: symptom.memory.within: unknown key; expected one of: .*at_least"),
    ("at_least: 15%", "at_least: much", r":8: symptom.memory.at_least: 'much': expected a bound such as"),
    ("at_least: 15%", "at_least: 5pp", r":8: .*points \(pp\) are for shares, and kv_resident_bytes is in B"),
    ('is: ">= 0.30"', 'is: "> 0.30"', r":13: cause.any.large.is: '> 0.30': expected '<= x' or '>= x'"),
    ('is: ">= 0.30"', "about: 3", r":13: cause.any.large: expected 'is' or 'change'"),
    ("segment: both", "segment: after", r":17: .*'after'; expected one of: baseline, current, both"),
    ("status: trial", "status: tral", r":4: status: 'tral' \(did you mean 'trial'\?\)"),
    ("schema: 1", "schema: 2", r":1: schema: this kvscope reads schema 1, the file says '2'"),
    ("id: rule", "id: other", r":2: id: 'other' must equal the file's name, 'rule'"),
    ("  slug: some_cause\n", "", r"cause: key 'slug' is missing"),
    ("some_cause", "Some Cause", r":10: cause.slug: 'Some Cause': expected lower case words"),
    ("kind: remove_share", "kind: remove", r":18: gain.kind: 'remove'.*expected one of: remove_share"),
    ("  likely: some", "  certain: some", r":27: tests.certain: unknown key"),
    ("  memory: {source", "  memry: {source", r"thresholds.memry: no check of that name \(did you mean 'memory'\?\)"),
    ("source: judgement", "source: guess", r":29: thresholds.memory.source: 'guess'; expected one of: measured"),
    ("title: A rule", "title: [a]", r":3: title: expected text, found a list"),
    ("title: A rule", "title: A\ntitle: B", r":4: 'title' is there twice \(first at line 3\)"),
    ("compare:\n  same: [model]\n", "", r"this check needs a baseline, and the playbook has no 'compare'"),
    ("  - do it", "  - do: {it: now", r"rule.yaml:\d+: not YAML"),
]


@pytest.mark.parametrize(("right", "wrong", "message"), MISTAKES, ids=[wrong for _, wrong, _ in MISTAKES])
def test_an_authors_mistake_is_named_with_its_place(tmp_path: Path, right: str, wrong: str, message: str) -> None:
    assert right in RULE
    with pytest.raises(UsageError, match=message):
        load_playbook(written(tmp_path, RULE.replace(right, wrong, 1)))


def test_a_file_that_is_not_there_or_no_mapping_is_an_error_of_the_user(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load_playbook(tmp_path / "none.yaml")
    with pytest.raises(UsageError, match="keys and values at the top level"):
        load_playbook(written(tmp_path, "- a list\n"))


def test_all_that_ship_are_loaded_and_a_folder_adds_more(tmp_path: Path) -> None:
    written(tmp_path)
    shipped = load_all()
    assert {"memory-down-throughput-flat", "admission-capped"} <= {rule.id for rule in shipped}
    assert {rule.id for rule in load_all([tmp_path])} == {"rule", *(rule.id for rule in shipped)}


def test_a_retired_rule_is_checked_and_left_out(tmp_path: Path) -> None:
    written(tmp_path, RULE.replace("status: trial", "status: retired"))
    assert "rule" not in {rule.id for rule in load_all([tmp_path])}


def test_a_look_at_a_playbook_that_does_not_exist_is_named(tmp_path: Path) -> None:
    written(tmp_path, RULE.replace("    says: nothing was", "    look: admission-caped\n    says: nothing was"))
    with pytest.raises(UsageError, match=r"rivals\.load\.look: .*did you mean 'admission-capped'"):
        load_all([tmp_path])


def test_an_id_taken_twice_names_both_files(tmp_path: Path) -> None:
    text = RULE.replace("id: rule", "id: admission-capped")
    written(tmp_path, text, "admission-capped.yaml")
    with pytest.raises(UsageError, match=r"'admission-capped' is taken by .*admission-capped\.yaml"):
        load_all([tmp_path])


def test_bounds_are_numbers_percents_or_points() -> None:
    assert parse_bound("0.2") == Bound(0.2)
    assert parse_bound("15%") == Bound(0.15)
    assert parse_bound("5pp") == Bound(0.05, points=True)
    assert parse_bound("a lot") is None
    assert parse_comparison("<= 25%") == ("<=", 0.25)
    assert parse_comparison("< 1") is None
