"""Dips of the hit rate: what heals by itself is one, what was never cached, or never comes back, is none."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kvscope import signals
from kvscope.signals.reading import Missing, Reading
from kvscope.store import Store
from probes.sample import Sample, labels_of

EVERY_S, ASKED = 2.0, 1000.0


def watched(
    hit: Sequence[float], back: Sequence[float], prefilled: Sequence[float] = (), usage: Sequence[float] = ()
) -> Store:
    """A store with one row a slice: the share found, the share that comes back, tokens prefilled, the pool's use."""
    store, totals = Store(), [0.0, 0.0, 0.0, 0.0]
    names = ("prefix.queries", "prefix.hits", "prefix.reusable", "tokens.prefilled")
    nothing = [0.0] * len(hit)
    rows = [(0.0, 0.0, 0.0, 0.0), *zip([1.0] * len(hit), hit, back, prefilled or nothing, strict=True)]
    for index, row in enumerate(rows):
        totals = [total + ASKED * part for total, part in zip(totals, row, strict=True)]
        used = (usage or nothing)[max(0, index - 1)]
        store.add(Sample(name, total, index * EVERY_S) for name, total in zip(names, totals, strict=True))
        store.add([Sample("kv.pool_usage_ratio", used, index * EVERY_S, labels_of(pool="window"))])
    return store


def value(store: Store, name: str) -> float:
    found = signals.compute(name, store, store.segments[0])
    assert isinstance(found, Reading), found
    return found.value


HIT = [0.97, 0.97, 0.97, 0.0, 0.97, 0.97, 0.97, 0.97, 0.97, 0.97, 0.1, 0.97, 0.97, 0.97]
BACK = [0.98] * len(HIT)


def test_a_rate_that_falls_and_heals_is_counted_with_what_it_lost() -> None:
    store = watched(HIT, BACK)
    assert value(store, "prefix_dips") == 2
    lost, computed = 0.97 + 0.87, len(HIT) - sum(HIT)
    assert value(store, "prefix_dip_share") == pytest.approx(lost / computed)


@pytest.mark.parametrize(
    ("hit", "back"),
    [
        ([0.97] * 14, BACK),
        (HIT, [0.0 if found < 0.5 else 0.98 for found in HIT]),
        ([0.97] * 10 + [0.0] * 4, BACK),
        ([0.97, 0.0] * 7, BACK),
        ([0.0] * 14, BACK),
    ],
    ids=["steady", "new prompts", "lost for good", "every other one", "never found"],
)
def test_what_does_not_fall_come_back_and_heal_as_an_exception_is_no_dip(hit: list[float], back: list[float]) -> None:
    assert value(watched(hit, back), "prefix_dips") == 0


def test_the_pool_is_read_where_prefixes_were_pushed_out() -> None:
    usage = [0.95 if found < 0.5 else 0.4 for found in HIT]
    assert value(watched(HIT, BACK, usage=usage), "prefix_dip_pool_usage") == pytest.approx(0.95)


def test_a_giant_prompt_is_seen_beside_what_the_dip_itself_made_compute() -> None:
    hit, lost = [0.97] * 30, 0.97
    hit[20] = 0.0
    alone = [0.03 + (lost if index == 20 else 0.0) for index in range(30)]
    giant = [one + (4.0 if index == 19 else 0.0) for index, one in enumerate(alone)]
    assert value(watched(hit, [0.98] * 30, alone), "prefix_dip_prefill_ratio") == pytest.approx(1.0, abs=0.1)
    assert value(watched(hit, [0.98] * 30, giant), "prefix_dip_prefill_ratio") > 3


def test_without_what_comes_back_nothing_is_claimed() -> None:
    store = Store()
    for index in range(20):
        store.add([Sample("prefix.queries", 1000.0 * index, 2.0 * index), Sample("prefix.hits", 0.0, 2.0 * index)])
    found = signals.compute("prefix_dips", store, store.segments[0])
    assert isinstance(found, Missing)
    assert "KV events" in found.remedy
