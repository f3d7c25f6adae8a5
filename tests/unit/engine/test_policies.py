"""What every policy on disk must keep to, and what each is for."""

from __future__ import annotations

import pytest
import torch

from engine import forms, policies
from engine.forms import EVICTED, HOT
from engine.knobs import Knobs
from engine.policies._base import Run
from tests.unit.engine.tiny import engine, greedy, prompt, run

ALL = policies.names()
SPARSE = tuple(name for name in ALL if policies.get(name).SPARSE)
KNOBS = Knobs(sink_tokens=16, window_tokens=32, min_read_tokens=16)
WHOLE = {"kept_share": "1.0", "hot_share": "1.0", "window_tokens": "16"}


def a_run(blocks: int = 20, turns: tuple[int, ...] = (), seed: int = 1) -> Run:
    importance = torch.rand(2, blocks, 3, generator=torch.Generator().manual_seed(seed)) + 0.01
    return Run(importance, 16, turns)


def test_the_policies_of_the_article_are_there() -> None:
    assert set(ALL) >= {"full", "window", "block_sparse", "heavy_hitters", "combined", "turn_aware"}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("blocks", [1, 2, 3, 20])
def test_forms_are_known_and_sinks_and_window_stay_hot(name: str, blocks: int) -> None:
    placed = policies.get(name).place(a_run(blocks), KNOBS)
    codes = {forms.get(form).CODE for form in forms.names()} | {EVICTED}
    assert placed.dtype == torch.uint8
    assert placed.shape == (2, blocks, 3)
    assert set(placed.unique().tolist()) <= codes
    assert bool((placed[:, :1] == HOT).all())
    assert bool((placed[:, -2:] == HOT).all())


@pytest.mark.parametrize("name", ALL)
def test_a_decision_is_the_same_every_time(name: str) -> None:
    policy = policies.get(name)
    assert torch.equal(policy.place(a_run(), KNOBS), policy.place(a_run(), KNOBS))


@pytest.mark.parametrize("name", ALL)
def test_with_shares_of_one_everything_stays_hot_and_is_read(name: str) -> None:
    knobs = KNOBS.with_text(WHOLE)
    assert bool((policies.get(name).place(a_run(), knobs) == HOT).all())
    keep = policies.get(name).keep(knobs, 16)
    assert keep is None or keep.share == 1.0


@pytest.mark.parametrize("importance", ["blind", "aware"])
@pytest.mark.parametrize("name", ALL)
def test_with_shares_of_one_answers_are_the_oracles(name: str, importance: str) -> None:
    made = engine(policy=name, importance=importance, kernels="block", **WHOLE)
    asked = [prompt(length, seed=length) for length in (40, 130)]
    requests = [made.submit(tokens, 40) for tokens in asked]
    run(made)
    assert [request.generated for request in requests] == [greedy(made.model, tokens, 40) for tokens in asked]
    assert made.residency.demotions == made.residency.evictions == 0


@pytest.mark.parametrize("name", SPARSE)
def test_a_quarter_kept_is_about_a_quarter_read(name: str) -> None:
    made = engine(policy=name, window_tokens="16", kept_share="0.25", kernels="block")
    made.submit(prompt(230, seed=3), 8)
    made.step()
    while made.has_work and not made.scheduler.running[0].prefilled:
        made.step()
    read = made.runner.run(made.scheduler.schedule(0.0)).traffic
    assert read is not None
    assert 0.15 < sum(read.read) / sum(read.total) < 0.45
    run(made)
    made.cache.check()


@pytest.mark.parametrize("cold", [name for name in forms.names() if name != "hot"])
@pytest.mark.parametrize("name", SPARSE)
def test_both_kernels_agree_under_every_policy_and_cold_form(name: str, cold: str) -> None:
    answers = []
    for kernels in ("generic", "block"):
        made = engine(policy=name, cold_form=cold, kernels=kernels, importance="aware", evict_share="0.1")
        requests = [made.submit(prompt(150, seed=seed), 60) for seed in (5, 6)]
        run(made)
        made.cache.check()
        answers.append([request.generated for request in requests])
    assert answers[0] == answers[1]


def test_the_window_keeps_the_first_and_the_last_blocks() -> None:
    placed = policies.get("window").place(a_run(), KNOBS)
    assert (placed[0, :, 0] == HOT).nonzero().flatten().tolist() == [0, 16, 17, 18, 19]


def test_the_window_moves_on_while_a_request_writes() -> None:
    made = engine(policy="window", kept_share="0.01", window_tokens="32")
    made.submit(prompt(100, seed=2), 100)
    run(made)
    assert made.residency.evictions >= 5 * made.cache.geometry.pages_per_block


def test_heavy_hitters_keep_what_drew_most_attention() -> None:
    run_ = a_run()
    run_.importance[0, 7, 1] = run_.importance[0, 9, 1] = 50.0
    placed = policies.get("heavy_hitters").place(run_, KNOBS)
    assert placed[0, 7, 1] == placed[0, 9, 1] == HOT
    assert (placed == HOT).sum(1).unique().tolist() == [5]


def test_a_block_nobody_voted_on_counts_as_an_average_one() -> None:
    run_ = a_run()
    run_.importance[:, 5] = 0.0
    run_.importance[:, [*range(1, 5), *range(6, 18)]] *= 0.01
    assert bool((policies.get("heavy_hitters").place(run_, KNOBS)[:, 5] == HOT).all())


def test_block_sparse_moves_nothing() -> None:
    assert bool((policies.get("block_sparse").place(a_run(), KNOBS) == HOT).all())


def test_the_combination_makes_important_blocks_hot_and_the_least_important_disappear() -> None:
    knobs = KNOBS.with_text({"hot_share": "0.3", "evict_share": "0.2", "cold_form": "lowrank"})
    placed = policies.get("combined").place(a_run(), knobs)
    codes = [(placed == code).sum(1).unique().tolist() for code in (HOT, forms.get("lowrank").CODE, EVICTED)]
    assert codes == [[6], [10], [4]]


def test_a_conversation_keeps_system_prompt_and_last_two_turns() -> None:
    run_ = a_run(turns=(0, 50, 120, 200, 260))
    hot = (policies.get("turn_aware").place(run_, KNOBS) == HOT).all((0, 2))
    assert hot.nonzero().flatten().tolist() == [0, 1, 2, 3, *range(12, 20)]


def test_an_earlier_turn_goes_cold_once_it_is_no_longer_one_of_the_last_two() -> None:
    made = engine(policy="turn_aware", hot_share="0.0", max_context=512, pool_blocks=128)
    spoken = prompt(160, seed=4)
    made.submit(spoken, 2, turns=(0, 32, 96))
    run(made)
    assert made.residency.demotions == 0
    made.submit((*spoken, *prompt(100, seed=5)), 2, turns=(0, 32, 96, 160, 200))
    run(made)
    assert made.residency.demotions > 0
    made.cache.check()


def test_a_static_structure_reads_the_same_number_of_blocks_whatever_the_context() -> None:
    keep = policies.get("combined").keep(KNOBS.with_text({"structure": "static", "static_blocks": "6"}), 16)
    assert keep is not None
    assert [keep.blocks_for(tokens) for tokens in (16, 96, 200, 4000)] == [1, 6, 6, 6]


def test_query_aware_importance_hears_the_question_and_the_answer_and_blind_does_not() -> None:
    mass = {}
    for importance in ("blind", "aware"):
        made = engine(policy="heavy_hitters", importance=importance, kept_share="1.0")
        made.submit(prompt(70, seed=8), 40)
        made.step()
        made.step()
        after_prompt = float(made.residency.importance.sum())
        for _ in range(20):
            made.step()
        mass[importance] = (after_prompt, float(made.residency.importance.sum()))
    assert mass["aware"][0] != mass["blind"][0]
    assert mass["aware"][1] > mass["aware"][0]
    assert mass["blind"][1] == mass["blind"][0]


@pytest.mark.parametrize("kernels", ["generic", "block"])
def test_a_static_structure_holds_as_many_entries_of_every_cold_block_and_none_comes_back(kernels: str) -> None:
    made = engine(
        policy="combined", cold_form="thinned", block_entries="4", hot_share="0.1", kernels=kernels, promote_after="1"
    )
    made.submit(prompt(200), 30)
    while made.has_work:
        made.step()
        made.cache.check()
        entries, thinned = made.cache.entries_by_layer(), int(made.cache.page_counts[0, forms.codes()["thinned"]])
        assert entries.cold[0] == 4 * thinned / made.cache.geometry.kv_heads
    assert made.residency.demotions > 0
    assert made.residency.promotions == 0
