"""Diagnosis: three-valued answers, rivals excluded by numbers, and no verdict without them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvscope.checks import Bound, Check
from kvscope.compare import Said
from kvscope.diagnose import diagnose
from kvscope.errors import NotEnoughData, UsageError
from kvscope.finding import Diagnosis, Finding
from kvscope.judge import Pair, judge
from kvscope.knobs import opposite, resolve
from kvscope.playbook import load_all
from kvscope.sources.source import Description
from kvscope.store import Store
from kvscope.verification import Verification, verify_change
from probes.sample import Sample
from tests.situations import BLOCK_KERNELS, CAP, COMPRESSED, DENSE, THROUGHPUT, compared, tried
from tests.synthetic import State, Stretch, store_of, stream

PLAYBOOKS = load_all()
RING = Description("ring", "pid 1")
PAGE = Description("vllm", "http://127.0.0.1:8000")
FLAGSHIP = "memory-down-throughput-flat"


def diagnosed(store: Store, description: Description = RING, *, everything: bool = False) -> Diagnosis:
    return diagnose(store, PLAYBOOKS, description, include_silent=everything)


def flagship(store: Store, description: Description = RING) -> Finding:
    return next(one for one in diagnosed(store, description, everything=True).findings if one.id == FLAGSHIP)


def live(situation: list[Stretch] | tuple[Stretch, ...], noise: float = 0.02, seed: int = 0) -> Store:
    return store_of(stream(situation, noise=noise, seed=seed))


def tried_out(store: Store) -> Verification:
    """The flagship's experiment, judged."""
    rule = next(one for one in PLAYBOOKS if one.id == FLAGSHIP)
    before, after = (store.segment(name) for name in ("compressed", "experiment"))
    return verify_change(flagship(store), rule, store, before, after)


class TestTheFlagship:
    def test_names_the_cause_with_every_rival_excluded_by_a_number(self) -> None:
        finding = flagship(live(compared(DENSE, COMPRESSED)))
        assert (finding.verdict, finding.slug) == ("likely", "index_access_bound")
        assert len(finding.rivals) == 7
        assert {rival.state for rival in finding.rivals} == {"excluded"}
        assert all(rival.evidence.value is not None for rival in finding.rivals)

    def test_carries_both_numbers_and_the_interval_of_each_change(self) -> None:
        memory = flagship(live(compared(DENSE, COMPRESSED))).evidence[0]
        assert memory.signal == "kv_resident_bytes"
        assert memory.baseline == pytest.approx(2.0e8, rel=0.02)
        assert memory.value == pytest.approx(7.0e7, rel=0.02)
        assert memory.change == pytest.approx(-0.65, abs=0.01)
        assert memory.change_error is not None
        assert 0 < memory.change_error < 0.02
        assert memory.batches == 10

    def test_expects_less_than_the_bound_allows(self) -> None:
        gain = flagship(live(compared(DENSE, COMPRESSED))).gain
        assert gain is not None
        reached, attended = 0.65, 0.116
        assert gain.bound == pytest.approx(1 / (1 - reached - attended), rel=0.02)
        assert gain.expected is not None
        assert 1.5 < gain.expected < 1 / (1 - reached)

    def test_is_confirmed_when_the_predictions_come_true(self) -> None:
        store = live(tried(DENSE, COMPRESSED, BLOCK_KERNELS))
        checked = tried_out(store).finding
        assert checked.verdict == "confirmed"
        assert checked.experiment is not None
        assert [one.answer for one in checked.experiment.predict] == ["yes", "yes"]

    def test_is_refuted_when_one_prediction_fails(self) -> None:
        store = live(tried(DENSE, COMPRESSED, BLOCK_KERNELS.but(tokens_per_s=340.0)))
        assert tried_out(store).outcome == "refuted"

    def test_stays_as_it_is_when_something_else_changed_with_the_experiment(self) -> None:
        store = live(
            [*compared(DENSE, COMPRESSED), Stretch("experiment", BLOCK_KERNELS, {"offered_load": "40 clients"})]
        )
        checked = tried_out(store)
        assert checked.finding.verdict == "likely"
        assert "offered_load changed with it" in checked.why

    def test_is_unexplained_when_access_is_cheap_and_then_advises_nothing(self) -> None:
        finding = flagship(live(THROUGHPUT["unexplained"]))
        assert finding.verdict == "unexplained"
        assert finding.fix == ()
        assert finding.experiment is None
        assert [rival.name for rival in finding.rivals if rival.state == "open"] == ["host_bound"]

    def test_with_too_little_load_is_only_possible(self) -> None:
        finding = flagship(live(compared(DENSE.but(waiting=0), COMPRESSED.but(waiting=0))))
        assert finding.verdict == "possible"
        assert [rival.name for rival in finding.rivals if rival.state == "open"] == ["too_little_load"]


class TestMissing:
    def test_a_rival_without_its_number_is_unmeasured_and_never_excluded(self) -> None:
        finding = flagship(live(compared(DENSE, COMPRESSED.but(drop=("time.host",)))))
        host = next(rival for rival in finding.rivals if rival.name == "host_bound")
        assert (host.state, finding.verdict) == ("unmeasured", "possible")
        assert "time.host" in host.evidence.missing
        assert host.evidence.remedy

    def test_a_cause_without_its_number_needs_data_and_says_which(self) -> None:
        found = diagnosed(live(THROUGHPUT["needs_data"]))
        assert {one.id: one.verdict for one in found.findings}[FLAGSHIP] == "needs_data"
        assert "access_share" in {one.signal for one in found.unknown}

    def test_a_rule_whose_symptom_cannot_be_read_is_not_shown_but_its_signals_are_listed(self) -> None:
        bare = State(
            waiting=0,
            drop=("sparse.entries_read", "kv.usage_ratio", "kv.resident_bytes", "latency.ttft", "latency.tpot"),
        )
        found = diagnosed(live([Stretch("now", bare)]))
        assert found.findings == ()
        assert "hit_rate_over_target" in {one.signal for one in found.unknown}

    def test_an_empty_store_is_not_enough_data(self) -> None:
        with pytest.raises(NotEnoughData, match="not a single sample"):
            diagnosed(Store())


class TestSegments:
    def test_without_a_second_segment_comparisons_are_silent_with_the_reason(self) -> None:
        store = live([Stretch("now", COMPRESSED.but(waiting=0))])
        assert [one.id for one in diagnosed(store).findings] == ["access-bound"]
        assert flagship(store).verdict == "needs_data"
        assert "no second segment" in flagship(store).notes

    def test_the_playbooks_own_names_are_preferred_to_the_last_two(self) -> None:
        finding = flagship(live(tried(DENSE, COMPRESSED, BLOCK_KERNELS)))
        assert (finding.baseline, finding.current) == ("dense", "compressed")

    def test_the_last_two_are_taken_when_no_name_fits(self) -> None:
        finding = flagship(live([Stretch("a", DENSE), Stretch("b", DENSE), Stretch("c", COMPRESSED)]))
        assert (finding.baseline, finding.current, finding.verdict) == ("b", "c", "likely")

    def test_what_the_caller_asks_for_is_taken_and_a_wrong_name_is_named(self) -> None:
        store = live(tried(DENSE, COMPRESSED, BLOCK_KERNELS))
        found = diagnose(store, PLAYBOOKS, RING, "dense", "experiment", include_silent=True)
        assert {one.current for one in found.findings} == {"experiment"}
        with pytest.raises(UsageError, match="did you mean 'dense'"):
            diagnose(store, PLAYBOOKS, RING, "dens")

    def test_tags_that_disagree_need_data_and_are_named(self) -> None:
        store = live(compared(DENSE, COMPRESSED, workload="chat"))
        finding = flagship(store)
        assert finding.verdict == "needs_data"
        assert "workload differs: recall 4096->64 in dense, chat in compressed" in finding.notes
        assert finding.fix == ()

    def test_tags_nobody_gave_are_taken_on_trust_and_cost_a_step_between_two_runs(self) -> None:
        store = Store()
        for item in stream(compared(DENSE, COMPRESSED)):
            if isinstance(item, Sample):
                store.add([item])
            else:
                store.mark(replace(item, tags={}))
        assert flagship(store).verdict == "likely"
        assert any("taken as unchanged, nobody tagged them: engine" in one for one in diagnosed(store).notices)
        assert flagship(store, PAGE).verdict == "possible"
        assert "Nobody says whether engine, version, model, device" in flagship(store, PAGE).notes
        same = Said(frozenset({"engine", "version", "model", "device", "workload", "offered_load", "cap"}))
        told = diagnose(store, PLAYBOOKS, PAGE, said=same, include_silent=True).findings
        assert next(one for one in told if one.id == FLAGSHIP).verdict == "likely"
        changed = diagnose(
            store, PLAYBOOKS, PAGE, said=Said(changed=frozenset({"model"})), include_silent=True
        ).findings
        assert "model was changed, as you say" in next(one for one in changed if one.id == FLAGSHIP).notes


class TestOrder:
    def test_what_the_same_cause_explains_folds_beneath_it(self) -> None:
        found = diagnosed(live(compared(DENSE, COMPRESSED))).findings
        assert found[0].id == FLAGSHIP
        same = [one for one in found[1:] if one.slug == found[0].slug]
        assert same
        assert {one.explained_by for one in same} == {FLAGSHIP}
        assert {one.id for one in same} <= set(found[0].explains)

    def test_two_findings_never_ask_for_opposite_settings(self) -> None:
        asks = next(rule for rule in PLAYBOOKS if rule.id == "admission-capped")
        assert asks.experiment is not None
        opposed = replace(asks, id="opposed", experiment=replace(asks.experiment, set=(("max_running", "x0.5"),)))
        found = diagnose(live(CAP["likely"]), [asks, opposed], RING)
        assert [one.verdict for one in found.findings] == ["likely", "likely"]
        assert found.findings[0].experiment is not None
        assert found.findings[1].experiment is None
        assert found.findings[1].fix == ()
        assert "is withheld" in found.notices[0]

    def test_settings_pull_apart_up_against_down_or_value_against_value(self) -> None:
        assert opposite("x2", "x0.5")
        assert opposite("+10%", "-1")
        assert opposite("block", "generic")
        assert not opposite("x2", "+50%")
        assert not opposite("block", "block")

    def test_a_relative_setting_is_resolved_against_the_current_one(self) -> None:
        assert resolve("8", "x2") == "16"
        assert resolve("0.1", "+50%") == "0.15"
        assert resolve("8", "-1") == "7"
        assert resolve("generic", "block") == "block"
        with pytest.raises(UsageError, match="x2 is a step, but the setting's present value is 'full'"):
            resolve("full", "x2")


class TestNothingChanged:
    @pytest.mark.parametrize("noise", [0.02, 0.10])
    def test_sixty_streams_of_noise_alone_are_silent(self, noise: float) -> None:
        state = DENSE.but(waiting=0, cap=16, resident=3.2e8, assumed=3.4e8)
        for seed in range(60):
            found = diagnosed(live([Stretch("before", state), Stretch("after", state)], noise, seed))
            assert found.findings == (), (seed, found.findings)

    def test_a_reset_between_two_equal_segments_is_no_change(self) -> None:
        state = DENSE.but(waiting=0)
        first, second = stream([Stretch("before", state)]), stream([Stretch("after", state)], seed=1)
        later = [
            item._replace(t=item.t + 100) if isinstance(item, Sample) else replace(item, t=1099.0) for item in second
        ]
        assert diagnosed(store_of([*first, *later])).findings == ()


def answer(check: Check, before: list[float], now: list[float]) -> str:
    """Judge a check on a gauge that was ``before``, then ``now``, cycled over twenty samples each."""
    samples = [Sample("sched.running", before[t % len(before)], float(t)) for t in range(20)]
    samples += [Sample("sched.running", now[t % len(now)], 20.0 + t) for t in range(20)]
    whole = store_of(samples).segments[0]
    store = store_of(samples)
    pair = Pair(store, replace(whole, name="now", start_s=20.0), replace(whole, name="before", end_s=20.0))
    return judge(check, pair).answer


def change(kind: str, size: float) -> Check:
    return Check("c", "running_requests", kind, bound=Bound(size))  # type: ignore[arg-type]


class TestAnswers:
    @pytest.mark.parametrize(
        ("check", "before", "now", "expected"),
        [
            (change("up", 0.1), [10.0], [12.0], "yes"),
            (change("up", 0.1), [10.0], [10.5], "no"),
            (change("up", 0.1), [10.0], [2.0, 4.0, 30.0], "unknown"),
            (change("down", 0.1), [10.0], [8.0], "yes"),
            (change("flat", 0.05), [10.0], [10.2], "yes"),
            (change("flat", 0.05), [10.0], [11.0], "no"),
            (change("flat", 0.05), [10.0], [2.0, 4.0, 25.0], "unknown"),
            (change("not_up", 0.1), [10.0], [5.0], "yes"),
            (change("not_up", 0.1), [10.0], [12.0], "no"),
            (change("not_down", 0.1), [10.0], [12.0], "yes"),
            (change("not_down", 0.1), [10.0], [5.0], "no"),
            (change("up", 0.5), [0.0], [3.0], "yes"),
            (change("flat", 0.05), [0.0], [0.0], "yes"),
        ],
    )
    def test_a_change_is_judged_by_its_interval(
        self, check: Check, before: list[float], now: list[float], expected: str
    ) -> None:
        assert answer(check, before, now) == expected

    def test_a_threshold_inside_the_interval_is_unknown(self) -> None:
        check = Check("c", "running_requests", "is", ">=", 10.0)
        assert answer(check, [0.0], [12.0]) == "yes"
        assert answer(check, [0.0], [8.0]) == "no"
        assert answer(check, [0.0], [4.0, 9.0, 18.0]) == "unknown"

    def test_both_segments_must_hold_where_the_author_says_both(self) -> None:
        check = Check("c", "running_requests", "is", ">=", 10.0, where="both")
        assert answer(check, [12.0], [12.0]) == "yes"
        assert answer(check, [2.0], [12.0]) == "no"
