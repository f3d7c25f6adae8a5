"""Signals: named numbers with an error, or the reason that there is none."""

from __future__ import annotations

import pytest

from kvscope import signals
from kvscope.errors import UsageError
from kvscope.signals.accounting import PARTS
from kvscope.signals.algebra import gauge
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import declare
from kvscope.store import Store
from probes.catalog import metric_of
from probes.sample import Sample, labels_of
from tests.synthetic import State, Stretch, store_of, stream


def read(name: str, store: Store) -> Reading:
    found = signals.compute(name, store, store.segments[-1])
    assert isinstance(found, Reading), found
    return found


def missing(name: str, store: Store) -> Missing:
    found = signals.compute(name, store, store.segments[-1])
    assert isinstance(found, Missing), found
    return found


def steady(state: State, noise: float = 0.0) -> Store:
    return store_of(stream([Stretch("now", state)], noise=noise))


def series(metric: str, values: list[float], every_s: float = 1.0, **labels: str) -> list[Sample]:
    return [Sample(metric, value, index * every_s, labels_of(**labels)) for index, value in enumerate(values)]


class TestTheList:
    def test_has_every_name_a_playbook_author_was_promised(self) -> None:
        promised = (
            "kv_resident_bytes kv_reserved_bytes kv_assumed_bytes kv_bytes_per_token kv_usage_ratio "
            "memory_estimate_coefficient kv_assumed_share generation_tokens_per_s prompt_tokens_per_s "
            "running_requests waiting_requests running_cap_share preemptions_per_s ttft_p50_s "
            "ttft_mean_s tpot_p50_s tpot_mean_s itl_mean_s queue_time_mean_s decode_step_s sparse_hit_rate "
            "kept_share_target hit_rate_over_target hot_access_share tier_switches_per_token tier_bytes_per_s "
            "tokens_per_step prefix_hit_rate context_tokens_mean right_token_share host_cpu_share host_share "
            "linear_share index_share gather_share attend_share decompress_share transfer_share sample_share "
            "unaccounted_share access_share idle_share prefill_decompress_share"
        )
        assert set(promised.split()) <= set(signals.names())

    def test_reads_only_metrics_of_the_catalogue(self) -> None:
        for name in signals.names():
            unit, help_text, needs = signals.describe(name)
            assert unit
            assert help_text.endswith(".")
            assert all(metric_of(metric) for metric in needs), name

    def test_refuses_a_second_signal_of_a_name(self) -> None:
        with pytest.raises(ValueError, match=r"'kv_resident_bytes' is defined twice: .* and 'Again\.'"):
            declare("kv_resident_bytes", gauge("kv.resident_bytes"), "", "Again.")

    def test_names_the_nearest_when_there_is_none(self) -> None:
        with pytest.raises(UsageError, match="did you mean 'access_share'"):
            signals.describe("acces_share")

    def test_is_missing_everywhere_in_an_empty_segment_and_never_zero(self) -> None:
        store = store_of([Sample("process.start_time", 1.0, float(t)) for t in range(20)])
        for name in signals.names():
            assert missing(name, store).remedy, name


class TestRatesAndRatios:
    def test_tokens_per_second_come_from_the_counter(self) -> None:
        store = store_of(series("tokens.generated", [100.0 + 40 * t for t in range(30)]))
        reading = read("generation_tokens_per_s", store)
        assert (reading.value, reading.error) == (pytest.approx(40.0), pytest.approx(0.0, abs=1e-9))
        assert reading.batches == 10

    def test_a_restart_is_survived_and_said(self) -> None:
        values = [40.0 * t for t in range(20)] + [40.0 * t for t in range(20)]
        reading = read("generation_tokens_per_s", store_of(series("tokens.generated", values)))
        assert reading.value == pytest.approx(40.0, rel=0.05)
        assert "1 counter reset survived" in reading.source

    def test_a_gap_is_noted(self) -> None:
        samples = [Sample("tokens.generated", 10.0 * t, float(t)) for t in (*range(20), *range(60, 80))]
        reading = read("generation_tokens_per_s", store_of(samples))
        assert reading.value == pytest.approx(10.0)
        assert "a gap of 41 s" in reading.source

    def test_engines_behind_one_page_are_summed(self) -> None:
        samples = series("tokens.generated", [10.0 * t for t in range(20)], engine="0")
        samples += series("tokens.generated", [30.0 * t for t in range(20)], engine="1")
        assert read("generation_tokens_per_s", store_of(samples)).value == pytest.approx(40.0)

    def test_one_scrape_only_has_a_total_since_the_start(self) -> None:
        found = missing("generation_tokens_per_s", store_of(series("tokens.generated", [1e6])))
        assert "since the engine started" in found.reason
        assert "watch for longer" in found.remedy

    def test_three_scrapes_give_a_number_with_a_wide_interval(self) -> None:
        three = read("generation_tokens_per_s", store_of(series("tokens.generated", [0.0, 39.0, 80.0])))
        assert three.batches == 2
        assert three.error > 5

    def test_a_row_per_step_and_a_page_per_second_agree(self) -> None:
        per_step = store_of(series("tokens.generated", [8.0 * t for t in range(1000)], every_s=0.02))
        per_second = store_of(series("tokens.generated", [400.0 * t for t in range(20)]))
        for store in (per_step, per_second):
            assert read("generation_tokens_per_s", store).value == pytest.approx(400.0)


class TestAccounting:
    def test_shares_sum_to_one_with_what_is_unaccounted(self) -> None:
        store = steady(State())
        total = sum(read(name, store).value for name in (*PARTS, "unaccounted_share"))
        assert total == pytest.approx(1.0)
        assert read("unaccounted_share", store).value == pytest.approx(0.03, rel=1e-3)

    def test_access_is_index_gather_and_decompression(self) -> None:
        shares = {"index": 0.2, "gather": 0.3, "decompress": 0.1, "linear": 0.4}
        assert read("access_share", steady(State(shares=shares))).value == pytest.approx(0.6)

    def test_a_part_nobody_reports_is_missing_and_the_rest_says_so(self) -> None:
        store = steady(State(drop=("time.gather",)))
        assert "time.gather" in missing("access_share", store).reason
        assert "includes time.gather" in read("unaccounted_share", store).source

    def test_decode_time_is_taken_as_reported_where_it_is(self) -> None:
        samples = series("time.decode", [0.5 * t for t in range(20)])
        samples += series("time.host", [0.1 * t for t in range(20)])
        assert read("host_share", store_of(samples)).value == pytest.approx(0.2)

    def test_headroom_is_inferred_from_tokens_per_step_where_no_part_is_reported(self) -> None:
        samples = series("batch.tokens_per_step.sum", [32.0 * t for t in range(20)])
        samples += series("batch.tokens_per_step.count", [1.0 * t for t in range(20)])
        reading = read("step_headroom_share", store_of(samples))
        assert reading.value == pytest.approx(0.5)
        assert reading.source.startswith("inferred")

    def test_an_engine_that_only_prefilled_has_no_decode_shares(self) -> None:
        assert "no time was spent on decode" in missing("host_share", steady(State(prefill=1.0, shares={}))).reason


class TestLoad:
    def test_a_configured_cap_is_measured(self) -> None:
        reading = read("running_cap_share", steady(State(running=6, cap=8)))
        assert reading.value == pytest.approx(0.75)
        assert reading.source == "measured"

    def test_without_a_cap_the_most_ever_seen_running_stands_in_and_is_called_inferred(self) -> None:
        store = steady(State(running=4, drop=("sched.max_running",)))
        assert read("running_cap_share", store).value == pytest.approx(1.0)
        assert read("running_cap_share", store).source.startswith("inferred")
        assert read("cap_bound_share", store).value == pytest.approx(1.0)

    def test_a_cap_does_not_bind_while_nobody_waits(self) -> None:
        assert read("cap_bound_share", steady(State(waiting=0))).value == 0.0

    def test_idle_samples_do_not_dilute_the_share_at_the_cap(self) -> None:
        running = [0.0] * 10 + [4.0] * 20 + [0.0] * 10
        waiting = [0.0] * 10 + [3.0] * 20 + [0.0] * 10
        store = store_of(series("sched.running", running) + series("sched.waiting", waiting))
        assert read("cap_bound_share", store).value == 1.0

    def test_what_the_scheduler_counted_at_the_cap_goes_before_gauges_read_after_a_step(self) -> None:
        ended = series("sched.running", [1.0, 2.0] * 20) + series("sched.waiting", [3.0] * 40)
        counted = series("batch.steps", [float(step) for step in range(40)])
        counted += series("sched.cap_bound_steps", [0.9 * step for step in range(40)])
        assert read("cap_bound_share", store_of(ended)).value == pytest.approx(0.5)
        assert read("cap_bound_share", store_of(ended + counted)).value == pytest.approx(0.9)

    def test_a_setting_said_once_long_ago_still_holds(self) -> None:
        samples = series("sched.running", [2.0] * 20) + series("sched.waiting", [1.0] * 20)
        store = store_of([Sample("sched.max_running", 4.0, -100.0), *samples])
        assert read("running_cap_share", store).value == pytest.approx(0.5)


class TestMemory:
    def test_an_estimate_twice_too_large_has_a_coefficient_of_two(self) -> None:
        store = steady(State(token_assumed=4000.0, token_measured=2000.0))
        assert read("memory_estimate_coefficient", store).value == pytest.approx(2.0)

    def test_the_next_request_does_not_fit_books_that_are_nearly_full(self) -> None:
        store = steady(State(assumed=3.6e8, reserved=4.0e8, running=8))
        assert read("kv_assumed_share", store).value == pytest.approx(0.9)
        assert read("kv_assumed_next_share", store).value == pytest.approx(0.9 * 9 / 8)

    def test_books_are_inferred_from_usage_where_admission_keeps_none(self) -> None:
        reading = read("kv_assumed_next_share", steady(State(drop=("kv.assumed_bytes",))))
        assert reading.source.startswith("inferred")

    def test_a_ratio_behind_two_engines_is_averaged_not_summed(self) -> None:
        samples = series("kv.usage_ratio", [0.2] * 20, engine="0") + series("kv.usage_ratio", [0.4] * 20, engine="1")
        assert read("kv_usage_ratio", store_of(samples)).value == pytest.approx(0.3)


class TestSparsityAndTiers:
    def test_a_hit_rate_of_sixty_where_twenty_five_were_asked_for_is_two_point_four_times_too_much(self) -> None:
        assert read("hit_rate_over_target", steady(State(hit=0.6, kept=0.25))).value == pytest.approx(2.4)

    def test_layers_that_disagree_have_a_spread(self) -> None:
        assert read("layer_hit_rate_spread", steady(State(layer_hits=(1.0, 0.2, 0.3)))).value == pytest.approx(0.8)

    def test_hot_reads_and_switches_are_counted_per_read_and_per_token(self) -> None:
        store = steady(State(hot=0.8, switches_per_token=0.3))
        assert read("hot_access_share", store).value == pytest.approx(0.8)
        assert read("tier_switches_per_token", store).value == pytest.approx(0.3)
