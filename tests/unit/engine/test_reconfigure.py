"""Knobs change between two steps: what is stored stays where it can, and is computed again where it cannot."""

from __future__ import annotations

import pytest

from tests.unit.engine.tiny import engine, greedy, prompt, run


@pytest.mark.parametrize(
    "change",
    [
        {"pool": "contiguous"},
        {"pool": "split", "split_hot": "0.8"},
        {"representatives": "mean"},
        {"lowrank_rank": "8"},
        {"host_mib": "1"},
    ],
    ids=str,
)
def test_the_pool_can_be_reshaped_while_requests_run(change: dict[str, str]) -> None:
    made = engine()
    prompts = [prompt(length, seed=length) for length in (50, 90)]
    requests = [made.submit(tokens, 30) for tokens in prompts]
    for _ in range(8):
        made.step()
    counted = made.scheduler.counts.prefix_queries
    made.set_knobs(change)
    assert made.scheduler.cache is made.residency.cache is made.cache
    assert made.scheduler.counts.prefix_queries == counted
    run(made)
    made.cache.check()
    assert [request.generated for request in requests] == [greedy(made.model, tokens, 30) for tokens in prompts]


def test_what_was_dropped_is_computed_again_when_less_is_to_be_dropped() -> None:
    made = engine(policy="window", kept_share="0.1", window_tokens="16")
    document = prompt(200, seed=3)
    made.submit((*document, 1), 4)
    run(made)
    assert made.residency.evictions > 0
    made.set_knobs({"policy": "full"})
    request = made.submit((*document, 1), 12)
    run(made)
    assert request.generated == greedy(made.model, (*document, 1), 12)


def test_a_finer_cold_form_is_made_from_the_tokens_and_not_from_the_coarser_one() -> None:
    made = engine(policy="combined", cold_form="merged")
    document = prompt(200, seed=4)
    made.submit((*document, 1), 2)
    run(made)
    made.set_knobs({"cold_form": "cold_int8"})
    assert made.cache.blocks.live == 0
    made.submit((*document, 1), 2)
    run(made)
    assert made.scheduler.counts.prefix_hits == 0


def test_a_speed_knob_touches_nothing_stored() -> None:
    made = engine(policy="combined")
    made.submit(prompt(200, seed=5), 2)
    run(made)
    held, moved = made.cache.blocks.live, made.residency.demotions
    made.set_knobs({"kernels": "block", "kept_share": "0.5", "max_running": "3", "step_tokens": "64"})
    assert (made.cache.blocks.live, made.residency.demotions) == (held, moved)
