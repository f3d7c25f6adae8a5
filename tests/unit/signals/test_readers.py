"""One expression, four readers: whatever the samples, a line's bins sum to the reading, and cells to the whole."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import fields, is_dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvscope import signals
from kvscope.signals.algebra import BUSY, QUEUED, Expr, Fraction, Gauge, Increase, Rate, Ratio, gauge, needs, rate
from kvscope.signals.curves import bins, curve
from kvscope.signals.evaluate import evaluate
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.samples import Samples
from kvscope.store import Segment, Store
from probes.catalog import metric_of
from probes.sample import Sample, labels_of
from tests.synthetic import store_of

PAIRED = (Rate, Ratio, Gauge, Fraction)
BOUNDS = ("0.1", "1", "10", "+Inf")


def parts(node: object) -> Iterator[Expr]:
    """Return every expression within an expression."""
    if isinstance(node, Expr):
        yield node
    if isinstance(node, tuple):
        for one in node:
            yield from parts(one)
    elif is_dataclass(node) and not isinstance(node, type):
        for field in fields(node):
            yield from parts(getattr(node, field.name))


EVERY = {name: signals.find(name).expr for name in signals.names()}
LEAVES = {part for expr in EVERY.values() for part in parts(expr) if isinstance(part, (*PAIRED, Increase))} | {
    gauge("kv.usage_ratio").during(BUSY),
    gauge("sched.waiting").during(QUEUED),
    Rate(rate("tokens.generated").amount, BUSY),
}


def watched(rng: random.Random) -> list[float]:
    """Times of samples: uneven, with now and then a gap."""
    t, found = 1000.0, []
    for _ in range(rng.randint(12, 40)):
        t += rng.choice((0.3, 1.0, 1.0, 1.0, 2.5, 40.0 if rng.random() < 0.1 else 1.0))
        found.append(t)
    return found


def counter(rng: random.Random, times: list[float]) -> list[float]:
    """A counter that sometimes stands still and sometimes begins anew."""
    value, found = rng.uniform(0, 1e4), []
    for _ in times:
        value = 0.0 if rng.random() < 0.05 else value + rng.choice((0.0, 1.0, rng.uniform(0, 50)))
        found.append(value)
    return found


def told(rng: random.Random, metric: str, times: list[float]) -> list[Sample]:
    """One metric as a source might tell it: several label sets, a histogram or a value for each request."""
    line = metric_of(metric)
    assert line is not None, metric
    names = [name for name in line.labels if name in ("layer", "rank", "pool", "gpu", "tier", "stage")]
    labels = [labels_of(**{name: str(i) for name in names}) for i in range(2 if names else 1)]
    if line.kind == "gauge":
        top = 1.0 if line.unit == "ratio" else 40.0
        return [Sample(metric, rng.choice((0.0, rng.uniform(0, top))), t, one) for one in labels for t in times]
    if line.kind == "counter":
        return [Sample(metric, v, t, one) for one in labels for t, v in zip(times, counter(rng, times), strict=True)]
    if rng.random() < 0.5:
        return [Sample(metric, rng.uniform(0.01, 5.0), t, ()) for t in times]
    steps = {bound: counter(rng, times) for bound in BOUNDS}
    found = [
        Sample(f"{metric}.bucket", v, t, labels_of(le=bound))
        for bound in BOUNDS
        for t, v in zip(times, steps[bound], strict=True)
    ]
    for part in ("sum", "count"):
        found += [Sample(f"{metric}.{part}", v, t, ()) for t, v in zip(times, counter(rng, times), strict=True)]
    return found


def store_for(rng: random.Random, metrics: tuple[str, ...]) -> Store:
    times = watched(rng)
    return store_of(sorted((one for metric in metrics for one in told(rng, metric, times)), key=lambda one: one.t))


def cuts_over(rng: random.Random, segment: Segment) -> list[float]:
    """Edges of bins from the segment's beginning to its end."""
    inner = sorted(rng.uniform(segment.start_s, segment.end_s) for _ in range(rng.randint(0, 30)))
    return [segment.start_s, *inner, segment.end_s]


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32))
@pytest.mark.parametrize("leaf", sorted(LEAVES, key=repr), ids=lambda leaf: "+".join(needs(leaf)) or "constant")
def test_what_the_bins_of_a_line_hold_sums_to_the_reading(leaf: Expr, seed: int) -> None:
    rng = random.Random(seed)
    store = store_for(rng, needs(leaf))
    segment = store.segments[0]
    samples, cuts = Samples(store, segment), cuts_over(rng, segment)
    whole = evaluate(leaf, samples)
    if isinstance(whole, Missing):
        return
    if isinstance(leaf, Increase):
        line = curve(leaf, samples, cuts)
        assert not isinstance(line, Missing)
        assert sum(value or 0.0 for value in line) == pytest.approx(whole.value, rel=1e-9, abs=1e-9)
        return
    assert isinstance(leaf, PAIRED)
    held = bins(leaf, samples, cuts)
    assert not isinstance(held, Missing)
    total = sum(top for top, _ in held) / sum(bottom for _, bottom in held)
    assert total == pytest.approx(whole.value, rel=1e-6, abs=1e-9)


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 2**32))
@pytest.mark.parametrize("name", EVERY)
def test_a_line_of_one_bin_is_the_reading(name: str, seed: int) -> None:
    expr, rng = EVERY[name], random.Random(seed)
    store = store_for(rng, needs(expr))
    segment = store.segments[0]
    samples = Samples(store, segment)
    whole, line = evaluate(expr, samples), curve(expr, samples, [segment.start_s, segment.end_s])
    drawn = getattr(expr, "drawn", None)
    if isinstance(whole, Missing) or drawn is not None:
        return
    assert not isinstance(line, Missing)
    assert line == [pytest.approx(whole.value, rel=1e-6, abs=1e-9)]


class TestByHand:
    """Arithmetic done on paper."""

    def test_a_counter_that_restarts_reads_the_same_on_the_chart_as_in_the_number_beside_it(self) -> None:
        # 100 tokens a second for 8 s, 2 s to start anew, 100 a second for 10 s: 1800 tokens in 20 s, less the second
        # in which nothing was seen to grow.
        before = [100.0 * t for t in range(9)]
        after = [0.0] + [100.0 * t for t in range(11)]
        rows = [Sample("tokens.generated", v, float(t), ()) for t, v in enumerate([*before, *after])]
        store = store_of(rows)
        reading = signals.compute("generation_tokens_per_s", store, store.segments[0])
        assert isinstance(reading, Reading)
        assert reading.value == pytest.approx(1800 / 20)
        points = signals.Line("generation_tokens_per_s", 5.0).points(store, 0.0, 20.0)
        assert points == ((2.5, 100.0), (7.5, pytest.approx(60.0)), (12.5, 100.0), (17.5, 100.0))
        assert sum(value for _, value in points) / 4 == pytest.approx(reading.value)

    def test_a_gauge_is_averaged_over_time_and_not_over_samples(self) -> None:
        # 4 requests for 10 s in samples 1 s apart, then 0 for 10 s in samples 5 s apart: each stands for half of both.
        rows = [(float(t), 4.0) for t in range(10)] + [(12.0, 0.0), (17.0, 0.0), (22.0, 0.0)]
        store = store_of([Sample("sched.running", v, t, ()) for t, v in rows])
        reading = signals.compute("running_requests", store, store.segments[0])
        assert isinstance(reading, Reading)
        # Samples stand for 1 s (the last of the first ten for 2, to half way), then for 4, 5 and 5 s.
        assert reading.value == pytest.approx(4 * 11 / (11 + 4 + 5 + 5))

    def test_nothing_stands_for_a_gap(self) -> None:
        rows = [(float(t), 1.0) for t in range(10)] + [(float(t), 3.0) for t in range(100, 110)]
        store = store_of([Sample("sched.running", v, t, ()) for t, v in rows])
        reading = signals.compute("running_requests", store, store.segments[0])
        assert isinstance(reading, Reading)
        assert reading.value == pytest.approx(2.0)
        assert "a gap of 91 s" in reading.source

    def test_idle_heads_and_tails_do_not_dilute_what_is_asked_while_busy(self) -> None:
        running = [0.0] * 10 + [4.0] * 10 + [0.0] * 10
        waiting = [0.0] * 10 + [6.0] * 5 + [0.0] * 15
        rows = [Sample("sched.running", v, float(t), ()) for t, v in enumerate(running)]
        rows += [Sample("sched.waiting", v, float(t), ()) for t, v in enumerate(waiting)]
        store = store_of(rows)
        found = {
            name: signals.compute(name, store, store.segments[0])
            for name in ("running_requests", "running_requests_while_busy", "waiting_requests_while_waiting")
        }
        assert [one.value for one in found.values() if isinstance(one, Reading)] == pytest.approx([4 / 3, 4.0, 6.0])

    def test_waste_is_weighed_by_the_blocks_in_use_and_not_by_samples(self) -> None:
        # 10 s with 1 block of 16 holding 8 tokens, 10 s with 100 blocks holding 1,520: 1,528 of 1,616 places are taken.
        rows = []
        for t in range(20):
            blocks, tokens = (1.0, 8.0) if t < 10 else (100.0, 1520.0)
            rows += [Sample("kv.used_blocks", blocks, float(t), ()), Sample("kv.used_tokens", tokens, float(t), ())]
            rows.append(Sample("kv.block_size", 16.0, float(t), ()))
        reading = signals.compute("block_waste_share", store_of(rows), store_of(rows).segments[0])
        assert isinstance(reading, Reading)
        assert reading.value == pytest.approx(1 - 1528 / 1616)

    def test_gauges_of_one_name_asked_twice_are_told_twice(self) -> None:
        rows = [Sample("kv.usage_ratio", 0.5, float(t), ()) for t in range(5)]
        samples = Samples(store_of(rows), store_of(rows).segments[0])
        assert samples.together("kv.usage_ratio", "kv.usage_ratio") == [(float(t), 0.5, 0.5) for t in range(5)]

    def test_a_count_is_exact_and_its_rate_is_not(self) -> None:
        rows = [Sample("sched.preemptions", float(t // 7), float(t), ()) for t in range(99)]
        store = store_of(rows)
        count, per_s = (
            signals.compute(name, store, store.segments[0]) for name in ("preemptions", "preemptions_per_s")
        )
        assert isinstance(count, Reading)
        assert isinstance(per_s, Reading)
        assert (count.value, count.error, count.kind) == (14.0, 0.0, "count")
        assert count.source.startswith("counted in 98 s")
        assert per_s.error > 0.0

    def test_time_spent_is_a_share_of_each_replicas_own_time(self) -> None:
        rows = [Sample("tier.load_time", 0.9 * t, float(t), labels_of(replica="a")) for t in range(20)]
        rows += [Sample("tier.load_time", 0.1 * t, float(t), labels_of(replica="b")) for t in range(20)]
        store = store_of(rows)
        reading = signals.compute("tier_link_busy_share", store, store.segments[0])
        assert isinstance(reading, Reading)
        assert reading.value == pytest.approx(0.5)
        told = signals.cells("tier_link_busy_share", store, store.segments[0], "replica")
        assert [one.value for one in told.values() if isinstance(one, Reading)] == pytest.approx([0.9, 0.1])

    def test_one_replica_at_its_cap_is_not_hidden_by_one_that_is_idle(self) -> None:
        rows = []
        for t in range(20):
            for replica, running, waiting in (("a", 4.0, 2.0), ("b", 1.0, 0.0)):
                labels = labels_of(replica=replica)
                rows += [
                    Sample("sched.running", running, float(t), labels),
                    Sample("sched.waiting", waiting, float(t), labels),
                ]
                rows.append(Sample("sched.max_running", 4.0, float(t), labels))
        store = store_of(rows)
        reading = signals.compute("cap_bound_share", store, store.segments[0])
        assert isinstance(reading, Reading)
        assert reading.value == pytest.approx(0.5)


def test_a_line_read_bit_by_bit_is_the_line_read_at_once() -> None:
    rng = random.Random(4)
    names = ("generation_tokens_per_s", "running_requests", "prefix_hit_rate", "token_time_s", "busy_sample_share")
    metrics = tuple(dict.fromkeys(metric for name in names for metric in signals.find(name).needs))
    rows = sorted(
        (one for metric in metrics for one in told(rng, metric, watched(random.Random(9)))), key=lambda s: s.t
    )
    bit_by_bit, store = {name: signals.Line(name, 2.0) for name in names}, Store()
    end = rows[-1].t + 4.0
    for t in sorted({row.t for row in rows}):
        store.add(row for row in rows if row.t == t)
        for line in bit_by_bit.values():
            line.points(store, 1000.0, t + 2.0)
    for name in names:
        grown, at_once = bit_by_bit[name].points(store, 1000.0, end), signals.Line(name, 2.0).points(store, 1000.0, end)
        assert not isinstance(grown, Missing)
        assert not isinstance(at_once, Missing)
        assert [t for t, _ in grown] == [t for t, _ in at_once], name
        assert [value for _, value in grown] == pytest.approx([value for _, value in at_once]), name


def test_a_rate_can_be_asked_for_while_requests_wait() -> None:
    rows = [Sample("tokens.generated", float(10 * min(t, 10) + 30 * max(0, t - 10)), float(t), ()) for t in range(21)]
    rows += [Sample("sched.waiting", float(t >= 10), float(t), ()) for t in range(21)]
    store = store_of(rows)
    found = signals.compute(Rate(rate("tokens.generated").amount, QUEUED), store, store.segments[0])
    assert isinstance(found, Reading)
    assert found.value == pytest.approx(30.0)
    assert gauge("sched.running").during(BUSY).when == BUSY
