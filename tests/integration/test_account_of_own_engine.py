"""The built-in engine's account agrees with its own step rows, part by part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

pytest.importorskip("torch")

import itertools

from kvscope import faults
from kvscope.account import account
from kvscope.store import Segment, Store
from probes.sample import Sample
from tests.faults import WARM_STEPS, start

POINTS = 0.03
SPACING_S = 0.05
"""Rows nearer than this are passed over when a flight recorder is read."""
SECONDS, STEPS = 3.0, 120
HELD = (
    ("pool", "sched.kv_bound_steps"),
    ("cap", "sched.cap_bound_steps"),
    ("token_budget", "sched.budget_bound_steps"),
)


def by_rows(names: Sequence[str], rows: Sequence[Sequence[float]]) -> dict[str, float]:
    """Shares of time by what each step counted, row by row: none passed over."""
    at = {name: index for index, name in enumerate(names)}
    seconds: Counter[str] = Counter()
    for before, after in itertools.pairwise(rows):
        grown = {name: after[index] - before[index] for name, index in at.items()}
        seconds["idle"] += max(0.0, grown["t"] - grown["time.step"])
        held = next((part for part, counter in HELD if grown[counter]), "demand")
        seconds[held] += min(grown["t"], grown["time.step"])
    whole = sum(seconds.values())
    return {part: value / whole for part, value in seconds.items()}


TOKEN = {
    "weights": ("time.linear",),
    "kv": ("time.attend", "time.gather", "decompress.time", "tier.transfer_time"),
    "index": ("sparse.index_time",),
    "host": ("time.host", "time.sample"),
}


def token_by_rows(names: Sequence[str], rows: Sequence[Sequence[float]]) -> dict[str, float]:
    """Shares of a token's time: what each step that decoded spent on it, and on prompts beside it."""
    at = {name: index for index, name in enumerate(names)}
    seconds: Counter[str] = Counter()
    for before, after in itertools.pairwise(rows):
        grown = {name: after[index] - before[index] for name, index in at.items()}
        if not grown["batch.decode_steps"]:
            continue
        parts = {part: sum(grown.get(name, 0.0) for name in from_) for part, from_ in TOKEN.items()}
        seconds.update(parts)
        decode = grown["time.step"] - grown["time.prefill"]
        seconds["unknown"] += max(0.0, decode - sum(parts.values()))
        seconds["prefill_between"] += grown["time.prefill"]
    whole = sum(seconds.values())
    return {part: value / whole for part, value in seconds.items()}


@pytest.mark.parametrize("name", ["running_cap", "static_reservation", "token_budget", "client_bound", "nothing_wrong"])
def test_each_part_is_within_three_points_of_the_step_rows(name: str) -> None:
    run = start(faults.get(name), {})
    run.go(30.0, WARM_STEPS)
    run.cut()
    run.go(SECONDS, STEPS)
    rows = run.sink.steps[max(0, run.first) :]
    clock = run.names.index("t")
    store, last = Store(), float("-inf")
    for row in rows:
        if row[clock] - last >= SPACING_S or row is rows[-1]:
            last = row[clock]
            store.add(
                [Sample(metric, row[at], row[clock], ()) for at, metric in enumerate(run.names) if "[" not in metric]
            )
    found = account(store, Segment("run", rows[0][clock], rows[-1][clock] + 1e-6))
    admitted, expected = found.levels["admission"], by_rows(run.names, rows)
    assert admitted is not None
    assert found.known["admission"] == "counted"
    for part, share in admitted.items():
        assert share == pytest.approx(expected.get(part, 0.0), abs=POINTS), part
    spent, watched = rows[-1], rows[-1][clock] - rows[0][clock]
    prefill = (spent[run.names.index("time.prefill")] - rows[0][run.names.index("time.prefill")]) / watched
    token, by_part = found.levels["token"], token_by_rows(run.names, rows)
    assert token is not None
    assert found.known["token"] == "counted"
    for part, share in token.items():
        assert share == pytest.approx(by_part.get(part, 0.0), abs=POINTS), part
    engine = found.levels["engine"]
    assert engine is not None
    assert engine["prefill"] == pytest.approx(prefill, abs=POINTS)
