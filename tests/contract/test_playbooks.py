"""What every playbook on disk must bring: its proof, its numbers' provenance, and silence where nothing is wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kvscope.authoring import read_whole
from kvscope.diagnose import diagnose
from kvscope.finding import Diagnosis, Finding
from kvscope.judge import Pair
from kvscope.playbook import load_all
from kvscope.playbook_schema import Playbook
from kvscope.store import Store
from kvscope.verification import verify_change

ROOT = Path(__file__).resolve().parents[2]
PLAYBOOKS = load_all()
QUIET = sorted((ROOT / "samples/quiet").glob("*.jsonl"))
PROOFS = [
    pytest.param(rule, verdict, ROOT / path, id=f"{rule.id}-{verdict}-{Path(path).stem}")
    for rule in PLAYBOOKS
    for verdict, paths in rule.tests
    for path in paths
]
EXPERIMENT = ("confirmed", "refuted")
LARGEST_RECORDING = 41_000


def finding_of(rule: Playbook, path: Path, store: Store, *, experiment: bool) -> Finding:
    """The rule's own finding; where the last segment is an experiment, of what was before it."""
    names = [segment.name for segment in store.segments]
    now, before = None, None
    if experiment:
        now, before = names[-2], names[-3] if rule.compare else None
    _, description = read_whole(path)
    found = diagnose(store, PLAYBOOKS, description, before, now, include_silent=True)
    agree_on_knobs(found)
    return next(finding for finding in found.findings if finding.id == rule.id)


def agree_on_knobs(found: Diagnosis) -> None:
    """No two findings of one diagnosis set a knob apart."""
    chosen: dict[str, str] = {}
    for finding in found.findings:
        if finding.verdict != "silent":
            for knob, value in finding.experiment.set if finding.experiment else ():
                assert chosen.setdefault(knob, value) == value, knob


@pytest.mark.parametrize(("rule", "verdict", "path"), PROOFS)
def test_a_recording_gives_the_verdict_it_is_kept_for(rule: Playbook, verdict: str, path: Path) -> None:
    store, _ = read_whole(path)
    finding = finding_of(rule, path, store, experiment=verdict in EXPERIMENT)
    if verdict in EXPERIMENT:
        finding = verify_change(finding, rule, store, *store.segments[-2:]).finding
    assert finding.verdict == verdict, finding


@pytest.mark.parametrize("path", QUIET, ids=lambda path: path.stem)
def test_every_playbook_is_silent_where_nothing_is_wrong(path: Path) -> None:
    store, description = read_whole(path)
    assert diagnose(store, PLAYBOOKS, description).findings == ()


@pytest.mark.parametrize("rule", PLAYBOOKS, ids=lambda rule: rule.id)
class TestEveryPlaybook:
    def test_fires_on_one_recording_and_is_silent_on_another(self, rule: Playbook) -> None:
        verdicts = {verdict for verdict, _ in rule.tests}
        assert {"silent"} < verdicts
        assert verdicts & {"likely", "possible"}

    def test_says_where_each_threshold_comes_from(self, rule: Playbook) -> None:
        assert {check.name for check in rule.checks()} == set(rule.thresholds)

    def test_names_its_cause_its_gain_and_what_to_try(self, rule: Playbook) -> None:
        assert rule.cause.slug
        assert rule.gain
        assert rule.fix
        assert rule.experiment
        assert rule.experiment.predict

    def test_reads_every_share_it_bounds_in_points_as_a_share(self, rule: Playbook) -> None:
        assert all(check.bound.size <= 1 for check in rule.checks() if check.bound.points)


@pytest.mark.parametrize("path", sorted((ROOT / "samples/recordings").glob("*.jsonl")), ids=lambda path: path.stem)
def test_recordings_are_used_and_those_in_git_are_small(path: Path) -> None:
    assert path.stat().st_size <= LARGEST_RECORDING or path.name.count(".") == 2
    name = str(path.relative_to(ROOT))
    assert any(name in paths for rule in PLAYBOOKS for _, paths in rule.tests)


@pytest.mark.parametrize(("rule", "verdict", "path"), [proof for proof in PROOFS if proof.values[1] == "likely"])
def test_a_signal_taken_away_never_excludes_a_rival(rule: Playbook, verdict: str, path: Path) -> None:
    """Missing is not excluded: without its number a rival becomes unmeasured, and the verdict falls to possible."""
    whole, description = read_whole(path)
    for rival in rule.rivals:
        reads = {check.signal for check in rival.excluded_when}
        blind = [replace_rival(rule, rival.name)]
        found = diagnose(whole, blind, description, include_silent=True).findings[0]
        state = next(one for one in found.rivals if one.name == rival.name)
        assert state.state == "unmeasured", reads
        assert found.verdict == "possible"


def replace_rival(rule: Playbook, name: str) -> Playbook:
    """The rule with one rival reading a signal that nobody supplies."""
    blinded = []
    for rival in rule.rivals:
        checks = tuple(replace(check, signal="replica_ttft_ratio", where="current") for check in rival.excluded_when)
        blinded.append(replace(rival, excluded_when=checks) if rival.name == name else rival)
    return replace(rule, rivals=tuple(blinded))


def test_a_pair_without_a_baseline_cannot_tell_a_change() -> None:
    store, _ = read_whole(QUIET[0])
    reading = Pair(store, store.segments[0]).before("kv_resident_bytes")
    assert "no second segment" in getattr(reading, "reason", "")


@pytest.mark.parametrize("rule", [one for one in PLAYBOOKS if one.status == "stable"], ids=lambda rule: rule.id)
def test_a_stable_rule_was_recorded_on_a_real_engine_and_has_no_bound_of_mere_judgement(rule: Playbook) -> None:
    assert "judgement" not in {one.source for one in rule.thresholds.values()}
    heads = [
        json.loads((ROOT / path).read_text("utf-8").partition("\n")[0])
        for verdict, paths in rule.tests
        if verdict == "likely"
        for path in paths
    ]
    assert any(not head["synthetic"] for head in heads)
