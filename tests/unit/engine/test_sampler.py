"""How a token is chosen: greedy with ties to the lowest id, or drawn as temperature, nucleus and seed say."""

from __future__ import annotations

import pytest
import torch

from engine.request import Request
from engine.sampler import Sampling, choose, draw
from tests.unit.engine.tiny import engine, prompt, run

DRAWS = 4000


def request(sampling: Sampling) -> Request:
    return Request(0, (1,), 8, 0.0, sampling=sampling)


def test_greedy_ties_go_to_the_lowest_id() -> None:
    logits = torch.tensor([[0.0, 3.0, 1.0, 3.0], [2.0, 2.0, 2.0, 2.0]])
    assert choose(logits, [request(Sampling()), request(Sampling())]) == [1, 0]


def test_draws_follow_the_distribution_at_that_temperature() -> None:
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0])
    sampling = Sampling(temperature=0.5)
    counts = torch.zeros(4)
    for step in range(DRAWS):
        counts[draw(logits, sampling, (step + 0.5) / DRAWS)] += 1
    torch.testing.assert_close(counts / DRAWS, torch.softmax(logits / 0.5, -1), atol=1e-3, rtol=0)


def test_the_nucleus_is_the_fewest_tokens_that_reach_top_p() -> None:
    logits = torch.tensor([0.1, 0.5, 0.3, 0.1]).log()
    drawn = {draw(logits, Sampling(1.0, top_p), point / 100) for top_p in (0.7,) for point in range(100)}
    assert drawn == {1, 2}
    assert {draw(logits, Sampling(1.0, 0.01), point / 100) for point in range(100)} == {1}


@pytest.mark.parametrize("sampling", [Sampling(1e-6), Sampling(1e-6, 0.5), Sampling(50.0), Sampling(1.0, 0.999999)])
def test_extremes_stay_within_the_vocabulary(sampling: Sampling) -> None:
    logits = 30 * torch.randn(97, generator=torch.Generator().manual_seed(0))
    for point in (0.0, 0.5, 1.0 - 2**-53):
        assert 0 <= draw(logits, sampling, point) < 97


def test_a_seed_repeats_itself_whoever_shares_the_batch() -> None:
    warm, seeded = Sampling(temperature=1.0), Sampling(temperature=1.0, seed=7)
    alone = engine()
    first = alone.submit(prompt(20), 12, sampling=seeded)
    run(alone)
    shared = engine()
    others = [shared.submit(prompt(20, seed=seed), 12, sampling=warm) for seed in (5, 6)]
    again = shared.submit(prompt(20), 12, sampling=seeded)
    run(shared)
    assert again.generated == first.generated
    assert all(len(other.generated) == 12 for other in others)


def test_preemption_does_not_change_what_a_seed_says() -> None:
    calm, tight = engine(), engine(pool_blocks=12)
    said = []
    for made in (calm, tight):
        requests = [made.submit(prompt(30, seed=seed), 40, sampling=Sampling(0.8, 0.9, seed)) for seed in range(20, 25)]
        run(made)
        said.append([request.generated for request in requests])
    assert tight.scheduler.counts.preemptions > 0
    assert said[0] == said[1]
