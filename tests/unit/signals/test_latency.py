"""Latency: exact from one value per request, within a bucket from a histogram."""

from __future__ import annotations

import pytest

from kvscope import signals
from kvscope.signals.reading import Missing, Reading
from kvscope.store import Store
from probes.sample import Sample, labels_of
from tests.synthetic import store_of


def requests(values: list[float]) -> Store:
    return store_of([Sample("latency.ttft", value, float(t)) for t, value in enumerate(values)])


def histogram(per_second: dict[str, float], mean: float = 0.2, start: float = 500.0) -> Store:
    """A page a second; ``per_second`` are cumulative bucket increases."""
    samples = []
    for t in range(21):
        for bound, by in per_second.items():
            samples.append(Sample("latency.ttft.bucket", start + by * t, float(t), labels_of(le=bound)))
        count = per_second["+Inf"] * t
        samples.append(Sample("latency.ttft.count", start + count, float(t)))
        samples.append(Sample("latency.ttft.sum", 1000.0 + mean * count, float(t)))
    return store_of(samples)


def read(name: str, store: Store) -> Reading:
    found = signals.compute(name, store, store.segments[0])
    assert isinstance(found, Reading), found
    return found


def test_a_median_over_requests_is_exact() -> None:
    reading = read("ttft_p50_s", requests([0.1, 0.2, 0.3, 0.4, 0.5] * 9))
    assert reading.value == pytest.approx(0.3)
    assert reading.source == "measured: each request"


def test_the_mean_over_requests_has_a_batch_error() -> None:
    reading = read("ttft_mean_s", requests([0.1, 0.3] * 30))
    assert reading.value == pytest.approx(0.2)
    assert 0 <= reading.error < 0.05


def test_too_few_requests_are_said_to_be_too_few() -> None:
    store = requests([0.1, 0.2])
    found = signals.compute("ttft_p50_s", store, store.segments[0])
    assert isinstance(found, Missing)
    assert "only 2 requests" in found.reason


def test_a_median_from_buckets_carries_the_width_of_its_bucket() -> None:
    reading = read("ttft_p50_s", histogram({"0.1": 2.0, "0.5": 10.0, "+Inf": 10.0}))
    assert reading.value == pytest.approx(0.1 + (5 - 2) / 8 * 0.4)
    assert reading.value - reading.error <= 0.1
    assert reading.value + reading.error >= 0.5
    assert reading.source == "inferred: histogram bucket 0.1 to 0.5"


def test_a_quantile_beyond_the_last_bucket_is_missing_not_guessed() -> None:
    store = histogram({"0.1": 1.0, "+Inf": 10.0})
    found = signals.compute("ttft_p95_s", store, store.segments[0])
    assert isinstance(found, Missing)
    assert "above the last bucket" in found.reason


def test_what_happened_before_the_segment_does_not_count() -> None:
    assert read("ttft_mean_s", histogram({"0.1": 5.0, "+Inf": 10.0}, mean=0.07)).value == pytest.approx(0.07)


def test_engines_are_summed_bucket_by_bucket() -> None:
    samples = []
    for t in range(21):
        for engine, fast in (("0", 10.0), ("1", 0.0)):
            for bound, by in (("0.1", fast), ("1.0", 10.0), ("+Inf", 10.0)):
                samples.append(Sample("latency.ttft.bucket", by * t, float(t), labels_of(engine=engine, le=bound)))
    assert read("ttft_p50_s", store_of(samples)).value == pytest.approx(0.1)


def test_the_queues_part_of_the_first_token() -> None:
    samples = []
    for t in range(30):
        samples += [Sample("latency.ttft", 1.0, float(t)), Sample("sched.queue_time", 0.25, float(t))]
    assert read("queue_ttft_share", store_of(samples)).value == pytest.approx(0.25)
