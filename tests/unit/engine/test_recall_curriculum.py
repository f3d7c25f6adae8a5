"""Training batches: what their tails ask is told by their documents, whatever the kind of document."""

import random
from collections import Counter, defaultdict
from dataclasses import replace

import pytest
import torch

from engine.lab.recall.batch import IGNORE, Batch, make_batch
from engine.lab.recall.curriculum import CURRICULUM, GAPPED, LISTED, PLAIN, POLLED, TAGGED, Mix, Stage
from engine.lab.recall.curriculum import EVERYTHING as MIXED
from engine.lab.recall.task import KEY, NODES, NONE, TAGS

SHORT = [stage for stage in CURRICULUM if stage.length in (128, 512, 2048)][1:]


def values_told(document: list[int]) -> dict[tuple[int, int], Counter[int]]:
    told: defaultdict[tuple[int, int], Counter[int]] = defaultdict(Counter)
    for marker, key, value in zip(document, document[1:], document[2:], strict=False):
        if marker == KEY or marker in TAGS:
            told[marker, key][value] += 1
    return told


def check_row(tokens: list[int], targets: list[int], document_tokens: int) -> int:
    """Returns how many answers the row asks for."""
    told, asked = values_told(tokens[:document_tokens]), 0
    for at, target in enumerate(targets):
        if target == IGNORE:
            continue
        asked += 1
        assert at >= document_tokens
        if tokens[at] in NODES and (target in NODES or target == NONE):
            marker = tokens[at - 1] if tokens[at - 1] in TAGS else KEY
            votes = told.get((marker, tokens[at]), Counter())
            assert votes[target] == max(votes.values()) if target != NONE else not votes
    return asked


def batch_of(stage: Stage, mix: Mix, seed: int) -> Batch:
    rng = random.Random(seed)
    shape = replace(stage, mixes=(mix,), tokens_per_step=2 * stage.length).draw(rng)
    return make_batch(shape, torch.Generator().manual_seed(seed), rng)


@pytest.mark.parametrize("mix", [PLAIN, GAPPED, TAGGED, POLLED, LISTED, MIXED], ids=lambda mix: mix.name)
@pytest.mark.parametrize("stage", SHORT, ids=lambda stage: str(stage.length))
def test_every_answer_asked_for_is_what_the_document_says(stage: Stage, mix: Mix):
    for seed in range(5):
        batch = batch_of(stage, mix, seed)
        assert batch.tokens.shape == (2, stage.length)
        for tokens, targets in zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True):
            assert check_row(tokens, targets, batch.document_tokens) > 0


def test_a_batch_is_the_same_for_the_same_seed():
    first, second = (batch_of(SHORT[0], MIXED, 3) for _ in range(2))
    assert torch.equal(first.tokens, second.tokens)
    assert torch.equal(first.targets, second.targets)


def test_training_begins_with_plain_walks_and_ends_at_64k():
    assert CURRICULUM[0].mixes == (PLAIN,)
    assert CURRICULUM[-1].length == 65536
