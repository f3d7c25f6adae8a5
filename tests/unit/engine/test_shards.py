"""Who owns which block, one choice over all ranks, and parts that merge to the whole: without any rank started."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.lab.shards import candidates, partitions
from engine.lab.shards.check import alone, in_parts
from engine.lab.shards.content import KINDS, Content
from engine.lab.shards.dealt import balance, deal
from engine.lab.shards.held import own_places
from engine.lab.shards.merge import merge
from engine.lab.shards.partitions import Stretch
from engine.lab.shards.shape import Shape

BLOCKWISE = ("contiguous", "round_robin")
SMALL = Shape(2, 2, 4, 2, 16, 37, 16)


def stretch(blocks: int, ranks: int, pins: tuple[int, ...] = (), request: int = 0) -> Stretch:
    return Stretch(0, 4, request, 4, ranks, np.isin(np.arange(blocks), pins))


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("name", partitions.names())
def test_every_block_has_one_owner_and_every_rank_some(name: str, ranks: int) -> None:
    shape = Shape(4, 2, 4, 2, 16, 37, 16)
    dealt = deal(partitions.get(name), shape, ranks)
    held = dealt.blocks()
    assert held.sum() == 4 * 2 * 4 * 37
    assert (held > 0).all()


@pytest.mark.parametrize("ranks", [2, 4])
def test_dealt_blocks_hold_as_much_on_every_rank(ranks: int) -> None:
    for blocks in (33, 37, 64, 1023):
        held = deal(partitions.get("round_robin"), Shape(4, 1, 8, 4, 16, blocks, 16), ranks).blocks()
        assert held.max() / held.mean() <= 1.02


def test_an_owner_does_not_change_while_the_context_grows() -> None:
    deals = partitions.get("round_robin")
    short, longer = (deals.owners(stretch(blocks, 4, (0, 5, 9))) for blocks in (40, 90))
    assert (longer[:, :40] == short).all()


def test_first_blocks_and_pins_are_spread_over_ranks() -> None:
    deals = partitions.get("round_robin")
    sinks = {int(deals.owners(stretch(64, 4, (0,), request))[0, 0]) for request in range(4)}
    assert sinks == {0, 1, 2, 3}
    every_fourth = tuple(range(0, 64, 4))
    owners = deals.owners(stretch(64, 4, every_fourth))[0, list(every_fourth)]
    assert np.bincount(owners, minlength=4).tolist() == [4, 4, 4, 4]


def test_layers_that_keep_less_and_less_are_uneven_by_layer_and_even_by_block() -> None:
    shape = Shape(8, 1, 8, 4, 16, 256, 16, budgets="pyramid")
    by_layer, dealt = (deal(partitions.get(name), shape, 2).blocks() for name in ("by_layer", "round_robin"))
    assert by_layer.max() / by_layer.mean() > 1.4
    assert dealt.max() / dealt.mean() <= 1.02


@pytest.mark.parametrize(("name", "what"), [("by_head", "kv heads"), ("by_layer", "layers")])
def test_too_little_to_spread_is_refused_by_name(name: str, what: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: 2 {what} cannot be spread over 4 ranks"):
        deal(partitions.get(name), Shape(2, 1, 2, 2, 16, 64, 16), 4)


def test_an_unknown_partition_says_which_is_near() -> None:
    with pytest.raises(ValueError, match="did you mean 'round_robin'"):
        partitions.get("round_robbin")


@pytest.mark.parametrize("name", BLOCKWISE)
def test_places_of_all_ranks_are_the_whole_context(name: str) -> None:
    dealt = deal(partitions.get(name), SMALL, 3)
    own = [own_places(dealt, rank, 1) for rank in range(3)]
    together = np.concatenate([places for found in own if found is not None for places in (found[0],)], -1)
    there = np.sort(together, -1)[..., -37:]
    assert (there == np.arange(37)).all()


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_exchanged_candidates_give_the_choice_of_one_who_sees_all(ranks: int) -> None:
    made = torch.Generator().manual_seed(1)
    scores = torch.randn(3, 200, generator=made).round(decimals=1)
    places, pinned = torch.arange(200, dtype=torch.int32).expand(3, -1), torch.zeros(3, 200, dtype=torch.bool)
    pinned[:, [0, 199]] = True
    keys = candidates.keys(scores, places, pinned)
    for wanted in (1, 2, 17, 199):
        sent = [candidates.best(keys[:, rank::ranks], wanted) for rank in range(ranks)]
        edge = candidates.edge(torch.cat(sent, -1), wanted)
        chosen = keys >= edge[:, None]
        order = scores.masked_fill(pinned, torch.inf).argsort(descending=True, stable=True)[:, :wanted]
        expected = torch.zeros_like(chosen).scatter_(1, order, True)
        assert torch.equal(chosen, expected), wanted


def test_scores_of_either_sign_and_places_sort_as_numbers_do() -> None:
    scores = torch.tensor([-3.5, -0.25, 0.0, 1e-30, 2.0, 2.0, torch.inf])
    keys = candidates.keys(scores, torch.arange(7, dtype=torch.int32), torch.zeros(7, dtype=torch.bool))
    assert keys.argsort(descending=True).tolist() == [6, 4, 5, 3, 2, 1, 0]
    absent = candidates.keys(scores, torch.full((7,), -1, dtype=torch.int32), torch.ones(7, dtype=torch.bool))
    assert (absent == candidates.ABSENT).all()


def test_merged_parts_are_the_softmax_over_everything_and_empty_parts_add_nothing() -> None:
    made = torch.Generator().manual_seed(2)
    s, v = torch.randn(4, 30, generator=made) * 5, torch.randn(30, 8, generator=made)
    cuts = [slice(0, 7), slice(7, 7), slice(7, 30)]
    out = torch.stack([s[:, cut].softmax(-1) @ v[cut] for cut in cuts])
    merged = merge(out, torch.stack([s[:, cut].logsumexp(-1) for cut in cuts]))
    torch.testing.assert_close(merged, s.softmax(-1) @ v, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("share", [0.25, 1.0])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("name", BLOCKWISE)
def test_parts_of_blocks_agree_with_one_rank(name: str, ranks: int, kind: str, share: float) -> None:
    shape = Shape(2, 2, 4, 2, 16, 37, 16, share=share, pins=(5, 9))
    dealt, content = deal(partitions.get(name), shape, ranks), Content(shape, kind)
    queries = content.asked()
    for part, whole in zip(in_parts(dealt, content, queries), alone(dealt, content, queries), strict=True):
        assert float((part - whole).abs().max()) <= 1e-5


def test_balance_is_the_fullest_over_the_mean_at_every_grain() -> None:
    counts = np.zeros((2, 1, 2, 2), np.int64)
    counts[0, 0] = [[3, 1], [2, 2]]
    counts[1, 0] = [[1, 3], [2, 2]]
    found = balance([counts])
    assert (found.choice, found.request, found.batch) == (1.25, 1.0, 1.0)
    assert found.choice_p95 == 1.5


def test_neighbouring_blocks_resemble_each_other_in_drifting_keys_only() -> None:
    shape = Shape(1, 1, 2, 1, 64, 128, 16)
    alike = {}
    for kind in KINDS:
        means = Content(shape, kind).pages(0)[0].mean(3)
        both = torch.cosine_similarity(means[:, :, :-1], means[:, :, 1:], -1)
        alike[kind] = float(both.mean())
    assert alike["drift"] > 0.7
    assert abs(alike["random"]) < 0.1
