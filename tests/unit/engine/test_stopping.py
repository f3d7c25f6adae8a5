"""A request ends early at a stop token, when its listener has heard enough, or when nobody waits for it any more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.forms import EVICTED, NONE
from engine.request import Request
from engine.sampler import Sampling
from tests.unit.engine.tiny import CONFIG, engine, greedy, prompt, run


def test_a_stop_token_ends_the_answer_and_frees_the_blocks() -> None:
    made, asked = engine(), prompt(20)
    whole = greedy(made.model, asked, 20)
    stop = whole[5]
    request = made.submit(asked, 20, sampling=Sampling(stop_ids=frozenset({stop})))
    run(made)
    assert request.generated == whole[: whole.index(stop) + 1]
    assert request.finished
    assert made.cache.blocks.live == len(made.scheduler.prefix)


def test_a_listener_hears_every_token_in_its_step_and_may_end_the_answer() -> None:
    made, heard = engine(), []

    def listen(request: Request, token: int) -> bool:
        assert request.generated[-1] == token
        heard.append(token)
        return len(heard) == 4

    request = made.submit(prompt(20), 20, listener=listen)
    run(made)
    assert heard == request.generated == greedy(made.model, prompt(20), 4)


def test_a_cancelled_request_frees_its_blocks_wherever_it_is() -> None:
    made = engine(max_running="2")
    requests = [made.submit(prompt(60, seed=seed), 30) for seed in range(4)]
    made.step()
    assert len(made.scheduler.running) == 2
    for _ in range(4):
        made.step()
    kept = requests.pop(1)
    for request in requests:
        made.cancel(request)
    assert made.scheduler.running == [kept]
    assert not made.scheduler.waiting
    run(made)
    made.cache.check()
    assert kept.generated == greedy(made.model, kept.prompt, 30)
    assert made.cache.blocks.live == len(made.scheduler.prefix)


def test_cancelling_half_a_prefill_lets_another_compute_that_prefix() -> None:
    made, document = engine(), prompt(128, seed=9)
    first, second = made.submit((*document, 5), 4), made.submit((*document, 6), 4)
    made.step()
    made.cancel(first)
    run(made)
    assert second.generated == greedy(made.model, second.prompt, 4)
    made.cache.check()


def test_cancelling_twice_or_too_late_does_nothing() -> None:
    made = engine()
    request = made.submit(prompt(20), 3)
    run(made)
    made.cancel(request)
    made.cancel(request)
    made.cache.check()


def test_layers_with_a_window_equal_the_oracle() -> None:
    config = replace(CONFIG, windows=(24, 0))
    for knobs in ({}, {"policy": "combined", "kept_share": "1.0", "hot_share": "1.0", "window_tokens": "256"}):
        made = engine(config=config, **knobs)
        asked = [prompt(length, seed=length) for length in (5, 23, 24, 25, 70, 150)]
        requests = [made.submit(tokens, 20) for tokens in asked]
        run(made)
        assert [request.generated for request in requests] == [greedy(made.model, tokens, 20) for tokens in asked]


def test_a_window_of_one_whole_context_is_no_window() -> None:
    made = engine(config=replace(CONFIG, windows=(200, 200)))
    request = made.submit(prompt(50), 10)
    run(made)
    assert request.generated == greedy(engine().model, prompt(50), 10)


@pytest.mark.parametrize("prefix_cache", ["on", "off"])
def test_a_layer_with_a_window_frees_what_it_left_behind(prefix_cache: str) -> None:
    made = engine(config=replace(CONFIG, windows=(24, 0)), prefix_cache=prefix_cache, max_context=512)
    tokens, most = prompt(100), 0
    request = made.submit(tokens, 60)
    while made.has_work:
        made.step()
        live = [int(((form != NONE) & (form != EVICTED)).sum()) // CONFIG.kv_heads for form in made.cache.page_form]
        if request.generated and made.has_work:
            most = max(most, live[0] - (len(request.keys) if prefix_cache == "on" else 0))
        made.cache.check()
    assert 0 < most <= 3
    assert request.generated == greedy(made.model, tokens, 60)
    again = made.submit((*tokens[:50], 3), 10)
    run(made)
    assert again.generated == greedy(made.model, again.prompt, 10)


def test_windows_and_preemption_leave_answers_right() -> None:
    made = engine(config=replace(CONFIG, windows=(24, 0)), pool_blocks=14, watermark="0.0", prefix_cache="off")
    requests = [made.submit(prompt(60, seed=seed), 60) for seed in range(3)]
    run(made)
    assert made.scheduler.counts.preemptions > 0
    assert [one.generated for one in requests] == [greedy(made.model, one.prompt, 60) for one in requests]
