"""Budgets, reasons to wait, and pools of other shapes: what the scheduler does, and what it counts."""

from __future__ import annotations

import pytest

from engine.arena import OutOfBlocks
from engine.llm import Engine
from tests.unit.engine.tiny import engine, greedy, prompt, run


def asked(made: Engine, lengths: tuple[int, ...], count: int) -> None:
    for seed, length in enumerate(lengths):
        made.submit(prompt(length, seed=seed), count)


def test_a_step_computes_no_more_tokens_than_its_budget() -> None:
    made = engine(step_tokens="20", prefill_chunk="48")
    asked(made, (70, 30, 50), 12)
    while made.has_work:
        plan = made.scheduler.schedule(0.0)
        assert sum(end - start for _, start, end in plan.prefill) + len(plan.decode) <= 20
        made.step()
    assert made.scheduler.counts.budget_bound > 0


def test_with_a_budget_below_the_batch_requests_take_turns_and_answers_stay_right() -> None:
    made = engine(step_tokens="2")
    prompts = [prompt(20, seed=seed) for seed in range(5)]
    requests = [made.submit(tokens, 10) for tokens in prompts]
    run(made)
    assert [request.generated for request in requests] == [greedy(made.model, tokens, 10) for tokens in prompts]


def test_the_reason_for_waiting_is_counted() -> None:
    capped = engine(max_running="1")
    asked(capped, (20, 20), 4)
    capped.step()
    assert (capped.scheduler.counts.cap_bound, capped.scheduler.counts.kv_bound) == (1, 0)
    short = engine(pool_blocks=8)
    asked(short, (60, 60, 60), 4)
    short.step()
    assert (short.scheduler.counts.cap_bound, short.scheduler.counts.kv_bound) == (0, 1)


def test_without_a_prefix_cache_nothing_is_kept_or_found() -> None:
    made = engine(prefix_cache="off")
    document = prompt(128, seed=9)
    for last in (1, 2):
        made.submit((*document, last), 3)
        run(made)
    assert made.scheduler.counts.prefix_hits == 0
    assert made.cache.blocks.live == 0


def test_the_prefix_cache_gives_up_its_oldest_blocks_for_new_ones() -> None:
    made = engine(pool_blocks=16, max_running="1")
    for seed in range(6):
        made.submit(prompt(100, seed=seed), 4)
        run(made)
    assert made.scheduler.holdings.evictions > 0
    before = made.scheduler.counts.prefix_hits
    made.submit(prompt(100, seed=5), 4)
    run(made)
    assert made.scheduler.counts.prefix_hits - before == 96
    made.cache.check()


def test_a_curve_that_promises_too_much_room_preempts_and_a_true_one_does_not() -> None:
    preempted = {}
    for curve in ("0:0.05", "0:1.0"):
        made = engine(pool_blocks=16, admission="curve", curve=curve, curve_margin="0.0", prefix_cache="off")
        asked(made, (20,) * 6, 100)
        run(made)
        preempted[curve] = made.scheduler.counts.preemptions
        made.cache.check()
    assert preempted["0:0.05"] > 0
    assert preempted["0:1.0"] == 0


def test_a_contiguous_pool_takes_a_requests_whole_length_at_once_and_never_preempts() -> None:
    made = engine(pool="contiguous", pool_blocks=32, prefix_cache="off")
    prompts = [prompt(length, seed=length) for length in (20, 100, 40, 60, 90)]
    requests = [made.submit(tokens, 30) for tokens in prompts]
    made.step()
    held = made.scheduler.running[0].block_table
    assert len(held) == made.cache.geometry.blocks_for(50)
    assert (made.cache.page_offset[0, held, 0].sort().values.diff() > 0).all()
    run(made)
    assert made.scheduler.counts.preemptions == 0
    assert [request.generated for request in requests] == [greedy(made.model, tokens, 30) for tokens in prompts]
    made.cache.check()


def test_churn_leaves_holes_too_small_for_what_is_free_in_total() -> None:
    made = engine(pool="contiguous", pool_blocks=16, prefix_cache="off", watermark="0.0")
    asked(made, (60, 60, 60), 4)
    made.submit(prompt(20, seed=7), 60)
    made.step()
    first, second = made.scheduler.running[0], made.scheduler.running[1]
    made.cancel(first)
    made.cancel(made.scheduler.running[1] if made.scheduler.running[0] is second else made.scheduler.running[0])
    arena, shape = made.cache.arena, made.cache.geometry
    assert arena.longest_run(1) < arena.free_pages(1)
    with pytest.raises(OutOfBlocks, match="in a row"):
        made.cache.allocate(arena.free_pages(1) // shape.pages_per_block)
    assert made.scheduler.holdings.allocate(arena.free_pages(1) // shape.pages_per_block) is None
    assert made.scheduler.holdings.fragmented == 1


def test_a_split_pool_strands_what_a_full_policy_cannot_use() -> None:
    made = engine(pool="split", split_hot="0.5", pool_blocks=32, prefix_cache="off")
    asked(made, (100, 100, 100), 4)
    made.step()
    assert len(made.scheduler.running) == 2
    assert made.scheduler.counts.kv_bound == 1
    assert made.cache.arena.unusable_bytes(1) == made.cache.arena.pool_bytes // 2
    run(made)


def test_where_the_cold_pool_is_full_blocks_stay_hot_and_are_counted() -> None:
    made = engine(pool="split", split_hot="0.98", pool_blocks=64, policy="combined", hot_share="0.0")
    asked(made, (220, 220), 20)
    run(made)
    assert made.residency.refused > 0
    assert made.residency.demotions > 0
    made.cache.check()


def test_an_audit_is_counted() -> None:
    made = engine(audit_steps="2")
    asked(made, (30,), 9)
    run(made)
    assert made.scheduler.counts.audits >= 4


@pytest.mark.parametrize(("pool", "most"), [("arena", 256), ("contiguous", 256), ("split", 128)])
def test_a_request_the_pool_can_never_take_is_refused_at_the_door(pool: str, most: int) -> None:
    made = engine(pool=pool, split_hot="0.5", pool_blocks=16, max_context=512, admission="static")
    with pytest.raises(ValueError, match=rf"request of {most + 1} tokens, expected {most} at most"):
        made.submit(prompt(most), 1)
    made.submit(prompt(most - 10), 10)
    run(made)
    assert made.tokens_generated == 10


def test_a_pool_is_not_made_too_small_for_a_request_there_is() -> None:
    made = engine(pool_blocks=16, max_context=512)
    made.submit(prompt(200), 4)
    made.step()
    with pytest.raises(ValueError, match="request of 204 tokens"):
        made.set_knobs({"pool": "split", "split_hot": "0.5"})
    assert made.knobs.pool == "arena"
    run(made)
    assert made.tokens_generated == 4
