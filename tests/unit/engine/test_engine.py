"""The engine answers what the oracle answers, whatever it does with memory in between."""

from __future__ import annotations

import pytest

from engine.knobs import KnobError
from engine.llm import Engine
from engine.request import Request
from tests.unit.engine.tiny import engine, greedy, prompt, run


def answers(made: Engine, prompts: list[tuple[int, ...]], count: int) -> list[list[int]]:
    requests = [made.submit(tokens, count) for tokens in prompts]
    run(made)
    made.cache.check()
    return [request.generated for request in requests]


def test_a_full_policy_equals_the_oracle_token_for_token() -> None:
    made = engine()
    prompts = [prompt(length, seed=length) for length in (5, 16, 47, 100)]
    assert answers(made, prompts, 20) == [greedy(made.model, tokens, 20) for tokens in prompts]


@pytest.mark.parametrize("kernels", ["generic", "block"])
def test_reading_everything_sparsely_equals_the_oracle_when_nothing_is_cold(kernels: str) -> None:
    made = engine(policy="combined", kernels=kernels, kept_share="1.0", hot_share="1.0", window_tokens="256")
    prompts = [prompt(60, seed=3), prompt(33, seed=4)]
    assert answers(made, prompts, 12) == [greedy(made.model, tokens, 12) for tokens in prompts]


def test_both_sparse_kernels_give_the_same_answers() -> None:
    prompts = [prompt(150, seed=7), prompt(150, seed=8)]
    made = [engine(policy="combined", kernels=name) for name in ("generic", "block")]
    assert answers(made[0], prompts, 16) == answers(made[1], prompts, 16)


def test_preemption_changes_no_answer() -> None:
    made = engine(pool_blocks=12)
    prompts = [prompt(30, seed=seed) for seed in range(20, 25)]
    expected = [greedy(made.model, tokens, 40) for tokens in prompts]
    assert answers(made, prompts, 40) == expected
    assert made.scheduler.counts.preemptions > 0
    assert made.scheduler.counts.recomputed > 0


def test_a_shared_prefix_is_prefilled_once() -> None:
    made, document = engine(), prompt(128, seed=9)
    asked = [(*document, 5), (*document, 6), (*document, 7)]
    assert answers(made, asked, 4) == [greedy(made.model, tokens, 4) for tokens in asked]
    assert made.scheduler.counts.prefix_hits == 2 * 128
    assert made.scheduler.counts.prefix_queries == 3 * 129


def test_a_prompt_that_is_all_prefix_still_computes_its_last_token() -> None:
    made, document = engine(), prompt(64, seed=10)
    first = answers(made, [document], 6)
    assert answers(made, [document], 6) == first == [greedy(made.model, document, 6)]


def test_everything_is_given_back_when_work_ends() -> None:
    made = engine(policy="combined")
    answers(made, [prompt(100, seed=seed) for seed in range(4)], 30)
    held_by_prefix = len(made.scheduler.prefix)
    assert made.cache.blocks.live == held_by_prefix
    made.set_knobs({"policy": "full"})
    assert made.cache.blocks.live == 0
    made.cache.check()


def test_a_policy_switched_on_compresses_what_is_stored_already() -> None:
    made, document = engine(), prompt(240, seed=11)
    made.submit((*document, 1), 2)
    run(made)
    before = made.cache.resident_bytes()
    made.set_knobs({"policy": "combined"})
    assert made.cache.resident_bytes() < 0.75 * before
    assert made.residency.demotions > 0
    made.cache.check()


def test_switching_back_to_full_recomputes_and_answers_exactly() -> None:
    made = engine(policy="combined")
    request = made.submit(prompt(200, seed=12), 30)
    for _ in range(12):
        made.step()
    made.set_knobs({"policy": "full"})
    generated_before = list(request.generated)
    run(made)
    rest = greedy(made.model, (*request.prompt, *generated_before), 30 - len(generated_before))
    assert request.generated == generated_before + rest


def test_evicted_blocks_are_gone_and_never_read() -> None:
    made = engine(policy="combined", evict_share="0.3")
    answers(made, [prompt(240, seed=13)], 8)
    assert made.residency.evictions > 0


def test_promotion_moves_chosen_cold_blocks_and_keeps_the_budget() -> None:
    made = engine(policy="combined", promote_after="1", hot_share="0.3", window_tokens="16")
    answers(made, [prompt(240, seed=14)], 16)
    assert made.residency.promotions > 0
    assert made.residency.demotions > 0
    made.cache.check()


def test_static_admission_reserves_the_worst_case_and_watermark_does_not() -> None:
    running = {}
    for name in ("static", "watermark"):
        made = engine(pool_blocks=40, max_context=256, admission=name)
        for seed in range(6):
            made.submit(prompt(20, seed=seed), 10)
        made.step()
        running[name] = len(made.scheduler.running)
    assert running == {"static": 2, "watermark": 6}


def test_a_request_that_can_never_fit_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="256 at most"):
        engine().submit(prompt(250), 10)
    with pytest.raises(ValueError, match="1 prompt token or more"):
        engine().submit((), 10)


def test_a_wrong_knob_changes_nothing_and_names_the_nearest() -> None:
    made = engine()
    before = made.knobs
    with pytest.raises(KnobError, match="did you mean 'kernels'"):
        made.set_knobs({"policy": "combined", "kernel": "block"})
    with pytest.raises(KnobError, match=r"expected one of .*combined, full"):
        made.set_knobs({"policy": "fuller"})
    with pytest.raises(KnobError, match="from 0 to 1"):
        made.set_knobs({"kept_share": "25"})
    assert made.knobs == before


def test_answers_are_judged_where_the_right_one_is_known() -> None:
    made = engine()
    made.submit(prompt(10), 5, check=lambda previous, token: True)
    made.submit(prompt(12), 5, check=lambda previous, token: False)
    made.submit(prompt(14), 5)
    run(made)
    assert (made.tokens_checked, made.tokens_right, made.tokens_generated) == (10, 5, 15)


def test_a_step_that_raises_costs_the_request_it_was_for_and_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    running = engine()

    def listener(request: Request, token: int) -> bool:
        raise RuntimeError("this one cannot be told")

    bad = running.submit(prompt(20), 4, listener=listener)
    good = [running.submit(prompt(20, seed), 4) for seed in (1, 2)]
    for _ in range(200):
        if not running.has_work:
            break
        try:
            running.step()
        except RuntimeError:
            assert running.recover() == (bad,)
    assert not running.has_work
    assert [len(one.generated) for one in good] == [4, 4]
    assert bad.stopped
    running.cache.check()
