"""The demo's own run, replayed: the flagship comes first, and what it explains stands beneath it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvscope.authoring import read_whole
from kvscope.diagnose import diagnose
from kvscope.experiment import rule_of
from kvscope.playbook import load_all
from kvscope.verification import verify_change

RUN = Path(__file__).parents[2] / "samples/recordings/memory-down-throughput-flat.confirmed.cpu.jsonl"
FLAGSHIP = "memory-down-throughput-flat"


@pytest.mark.parametrize("pair", [("dense", "compressed"), (None, None)])
def test_the_flagship_is_first_and_its_experiment_one_window_short_of_a_verdict(
    pair: tuple[str | None, str | None],
) -> None:
    store, about = read_whole(RUN)
    found = diagnose(store, load_all(), about, *pair)
    assert found.findings[0].id == FLAGSHIP
    before, after = (store.segment(name) for name in ("compressed", "verified"))
    tried = verify_change(found.findings[0], rule_of(load_all(), FLAGSHIP), store, before, after)
    assert (tried.outcome, tried.windows) == ("cannot tell", 19)
    assert [one.evidence.change is not None for one in tried.predicted] == [True, True]
    beside = {one.id for one in found.findings[1:] if one.explained_by != FLAGSHIP}
    # Eight of the demo's twelve clients may run at once: that its other four wait is true as well, and comes after.
    assert beside <= {"admission-capped", "memory-down-concurrency-flat", "kv-smaller-not-the-limit"}
