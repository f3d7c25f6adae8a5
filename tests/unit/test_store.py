"""The store keeps samples in bounded rings and cuts them into segments."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from kvscope.signals.flows import gaps_of
from kvscope.sources.source import Mark
from kvscope.store import ENDED_KEPT, LIVE_CAPACITY, MOST_MARKS, Segment, Store
from probes.sample import Sample, labels_of


def gauge(t: float, value: float = 1.0, **labels: str) -> Sample:
    return Sample("sched.running", value, t, labels_of(**labels))


def names_of(store: Store) -> list[str]:
    return [segment.name for segment in store.segments]


def test_an_empty_store_has_no_segment_and_no_span() -> None:
    store = Store()
    assert store.segments == ()
    assert store.span is None
    assert store.metrics() == []


def test_a_stream_nobody_marked_has_one_segment_named_all() -> None:
    store = Store()
    store.add([gauge(1.0), gauge(2.0)])
    assert names_of(store) == ["all"]
    times, _ = store.series("sched.running", (), store.segments[0].start_s, store.segments[0].end_s)
    assert list(times) == [1.0, 2.0]


def test_a_mark_ends_the_segment_before_it_and_starts_its_own() -> None:
    store = Store()
    store.add(gauge(float(t)) for t in range(10))
    store.mark(Mark("dense", 0.0, {"policy": "full"}))
    store.mark(Mark("compressed", 4.0))
    dense, compressed = store.segments
    assert (dense.name, dense.start_s, dense.end_s, dense.tags) == ("dense", 0.0, 4.0, {"policy": "full"})
    assert compressed.start_s == 4.0
    assert list(store.series("sched.running", (), dense.start_s, dense.end_s)[0]) == [0.0, 1.0, 2.0, 3.0]
    assert list(store.series("sched.running", (), compressed.start_s, compressed.end_s)[0])[-1] == 9.0


def test_what_came_before_the_first_mark_is_kept_as_start() -> None:
    store = Store()
    store.add([gauge(1.0), gauge(2.0)])
    store.mark(Mark("dense", 2.0))
    assert names_of(store) == ["start", "dense"]


def test_marks_may_arrive_late_and_out_of_order() -> None:
    store = Store()
    store.add(gauge(float(t)) for t in range(10))
    store.mark(Mark("second", 6.0))
    store.mark(Mark("first", 0.0))
    assert names_of(store) == ["first", "second"]


def test_a_segment_is_found_by_name_and_the_newest_of_two_wins() -> None:
    store = Store()
    store.add(gauge(float(t)) for t in range(10))
    for t in (0.0, 5.0):
        store.mark(Mark("try", t))
    assert store.segment("try").start_s == 5.0
    with pytest.raises(KeyError, match="there are: try, try"):
        store.segment("tyr")


def test_series_are_kept_apart_by_labels() -> None:
    store = Store()
    store.add([gauge(1.0, 3.0, engine="0"), gauge(1.0, 5.0, engine="1")])
    assert store.keys("sched.running") == [labels_of(engine="0"), labels_of(engine="1")]
    assert store.latest("sched.running", labels_of(engine="1")) == 5.0
    assert store.latest("sched.running") is None


def test_the_latest_value_can_be_asked_for_as_of_a_time() -> None:
    store = Store()
    store.add([gauge(1.0, 10.0), gauge(2.0, 20.0)])
    assert store.latest("sched.running", (), before_s=1.5) == 10.0
    assert store.latest("sched.running", (), before_s=0.5) is None


def test_values_that_are_no_numbers_or_go_back_in_time_are_dropped() -> None:
    store = Store()
    store.add([gauge(1.0), gauge(2.0, float("nan")), gauge(0.5, 9.0), gauge(3.0)])
    assert list(store.series("sched.running")[0]) == [1.0, 3.0]


def test_a_full_ring_thins_its_older_half_and_keeps_its_first_sample() -> None:
    store = Store(capacity_per_series=100)
    store.add(gauge(float(t)) for t in range(10_000))
    times = store.series("sched.running")[0]
    assert len(times) <= 101
    assert times[0] == 0.0
    assert list(times[-40:]) == [float(t) for t in range(9960, 10_000)]


def test_what_others_computed_is_forgotten_when_new_samples_reach_the_open_segment_only() -> None:
    store = Store()
    store.add(gauge(float(t)) for t in range(10))
    store.mark(Mark("old", 0.0))
    store.mark(Mark("new", 5.0))
    old, new = store.segments
    store.memo(old)["x"], store.memo(new)["x"], store.memo()["window"] = 1, 2, 3
    store.add([gauge(11.0)])
    assert store.memo(old) == {"x": 1}
    assert store.memo(store.segments[1]) == store.memo() == {}
    store.mark(Mark("newer", 8.0))
    assert store.memo(old) == {}


def test_a_page_of_five_thousand_series_is_taken_in_a_few_milliseconds() -> None:
    labels = [labels_of(le=str(i)) for i in range(5000)]
    pages = [[Sample("latency.ttft.bucket", 1.0, float(t), label) for label in labels] for t in range(5)]
    store = Store()
    store.add(pages[0])
    best = float("inf")
    for page in pages[1:]:
        started = time.perf_counter()
        store.add(page)
        best = min(best, time.perf_counter() - started)
    assert best < 0.05


def test_segments_of_an_open_stream_reach_past_the_newest_sample() -> None:
    store = Store()
    store.add([gauge(1.0), gauge(2.0)])
    assert store.segments[0].end_s > 2.0
    assert isinstance(store.segments[0], Segment)


def test_label_sets_that_come_anew_at_every_poll_stay_within_the_budget_and_are_told() -> None:
    store = Store(most_bytes=1 << 20)
    for poll in range(300):
        churn = [Sample("requests.finished", 1.0, float(poll), labels_of(reason=f"{poll}-{i}")) for i in range(15)]
        store.add([*churn, Sample("sched.running", 3.0, float(poll))])
    assert len(store.keys("requests.finished")) < 1500
    assert store.latest("requests.finished", labels_of(reason="299-14")) == 1.0
    assert len(store.series("sched.running")[0]) == 300
    assert any("dropped" in line for line in store.notices)


def test_label_sets_that_all_stay_are_taken_up_to_the_budget_and_the_rest_is_told() -> None:
    store = Store(most_bytes=1 << 20)
    labels = [labels_of(reason=f"{i}{'x' * 50}") for i in range(5000)]
    for poll in range(10):
        store.add(Sample("requests.finished", 1.0, float(poll), one) for one in labels)
    assert 500 < len(store.keys("requests.finished")) < 2000
    assert any("not taken" in line for line in store.notices)


def test_long_series_are_thinned_to_the_budget_and_keep_their_ends() -> None:
    store = Store(most_bytes=200_000)
    for t in range(3000):
        store.add([Sample("sched.running", float(t), float(t), labels_of(replica=str(i))) for i in range(10)])
    times, _ = store.series("sched.running", labels_of(replica="3"))
    assert times[0] == 0.0
    assert times[-1] == 2999.0
    assert len(times) < 1500
    assert any("second value" in line for line in store.notices)


def test_a_long_past_is_kept_at_an_even_resolution_and_is_no_gap() -> None:
    store = Store.live()
    for t in range(6 * 3600):
        store.add([Sample("sched.running", float(t % 7), float(t)), Sample("tokens.generated", 9.0 * t, float(t))])
    times = list(store.series("sched.running")[0])
    assert len(times) <= LIVE_CAPACITY
    assert list(times[-360:]) == [float(t) for t in range(6 * 3600 - 360, 6 * 3600)]
    hours = [sum(3600 * h <= t < 3600 * (h + 1) for t in times) for h in range(5)]
    assert min(hours) > 0.5 * max(hours) > 15
    assert gaps_of([b - a for a, b in pairwise(times)]) == frozenset()


def test_what_was_polled_for_a_quarter_of_an_hour_weighs_what_six_hours_do() -> None:
    def bytes_after(seconds: int) -> int:
        store = Store.live()
        for t in range(seconds):
            born = [Sample("requests.finished", 1.0, float(t), labels_of(reason=f"{t // 20}-{i}")) for i in range(3)]
            store.add([*born, *(Sample("sched.running", 3.0, float(t), labels_of(replica=str(i))) for i in range(30))])
        return store._bytes

    assert bytes_after(3 * 3600) <= 1.1 * bytes_after(900)


def test_of_series_that_ended_long_ago_the_newest_are_kept_and_the_rest_is_told() -> None:
    store = Store.live()
    for t in range(0, 3600, 5):
        store.add([Sample("requests.finished", 1.0, float(t), labels_of(reason=str(t))), gauge(float(t))])
    kept = {int(dict(labels)["reason"]) for labels in store.keys("requests.finished")}
    assert kept >= set(range(3300, 3600, 5))
    assert ENDED_KEPT <= len(kept) < 200
    assert any("ended over 5 min ago" in line for line in store.notices)


def test_a_gap_is_told_where_the_past_is_coarse_as_well() -> None:
    steps = [*[30.0] * 40, 400.0, *[30.0] * 10, *[1.0] * 100, 9.0, *[1.0] * 20]
    assert gaps_of(steps) == {40, 151}


def test_a_store_within_its_budget_has_nothing_to_tell() -> None:
    store = Store()
    store.add([Sample("sched.running", 1.0, 0.0)])
    assert store.notices == ()


def test_of_very_many_marks_the_newest_are_kept_and_the_loss_is_told() -> None:
    store = Store()
    store.add(gauge(float(t)) for t in range(3000))
    for t in range(0, 3000, 2):
        store.mark(Mark(f"m{t}", float(t)))
    names = names_of(store)
    assert len(names) == MOST_MARKS + 1
    assert names[0] == "start"
    assert names[-1] == "m2998"
    assert any("marks" in line for line in store.notices)
