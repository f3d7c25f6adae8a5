"""Given answers are scored through the decode path, and a score says no more than was measured."""

from __future__ import annotations

import pytest
import torch

from engine.lab.accuracy.run import TOGETHER, answers_of, hear, said, script_of
from engine.lab.accuracy.score import Answers, wilson
from engine.lab.recall.tasks import Question
from engine.sampler import Sampling
from tests.unit.engine import tiny

LETTERS = tuple(range(10, 40))


def logits_of(*winners: int, lead: float = 2.0) -> torch.Tensor:
    rows = torch.zeros(len(winners), 8)
    for row, winner in enumerate(winners):
        rows[row, winner] = lead
    return rows


def test_an_answer_counts_when_all_of_its_tokens_win() -> None:
    answers = Answers(logits_of(1, 2, 3, 4), torch.tensor([1, 2, 3, 5]), (2, 2))
    assert answers.whole == (1, 2)
    assert answers.margins.tolist() == [2.0, 2.0, 2.0, -2.0]


def test_a_distribution_differs_from_itself_by_nothing_and_from_others_by_something() -> None:
    same, other = (Answers(logits_of(winner), torch.tensor([1]), (1,)) for winner in (1, 2))
    assert float(same.kl(same)) == 0.0
    assert float(other.kl(same)) > 0.5


@pytest.mark.parametrize(("right", "of"), [(0, 10), (5, 10), (10, 10), (499, 500)])
def test_an_interval_holds_its_share_and_stays_within_bounds(right: int, of: int) -> None:
    low, high = wilson(right, of)
    assert 0.0 <= low <= right / of <= high <= 1.0
    assert high - low < 0.7


def test_nothing_measured_leaves_everything_possible() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


def test_forced_tokens_are_said_whatever_the_logits_say() -> None:
    engine = tiny.engine()
    request = engine.submit(LETTERS, 6, sampling=Sampling(forced=(3, 1, 4)))
    while engine.has_work:
        engine.step()
    assert request.generated[:3] == [3, 1, 4]
    assert len(request.generated) == 6


def test_only_answers_are_scored_and_never_the_token_that_the_prompt_itself_gives() -> None:
    questions = [Question((1, 5), (6, 7), (), (0, 1)), Question((1, 8), (9, 2), (), (1,))]
    script = script_of(LETTERS, questions, (0, len(LETTERS)))
    whole = (*script.prompt, *script.fed)
    assert whole == (*LETTERS, *said(questions))
    assert [script.fed[place] for place in script.scored] == [6, 7, 2]
    assert min(script.scored) >= 1


def test_what_is_heard_is_what_the_model_would_have_said_next() -> None:
    free = tiny.engine()
    asked = free.submit(LETTERS, 5)
    while free.has_work:
        free.step()
    questions = [Question((LETTERS[-1], *asked.generated[:2]), tuple(asked.generated[2:]), (), (0, 1, 2))]
    heard = hear(tiny.engine(), [script_of(LETTERS[:-1], questions, ())])
    assert answers_of(questions, heard).whole == (1, 1)


def test_a_turn_has_room_for_several_questions() -> None:
    assert TOGETHER >= 1
