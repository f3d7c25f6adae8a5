"""Every task of the recall model: what it asks can be answered from its document, and only from there."""

import subprocess
import sys
from collections import Counter

import pytest

from engine.lab.recall import tasks
from engine.lab.recall.task import BOS, KEY, NODES, NONE, TAGS

DENSE = 1 / 3


def facts_of(document: tuple[int, ...]) -> list[tuple[int, int, int]]:
    return [
        (document[i], document[i + 1], document[i + 2])
        for i in range(1, len(document) - 2)
        if document[i] == KEY or document[i] in TAGS
    ]


@pytest.mark.parametrize("name", tasks.names())
def test_an_episode_is_the_same_for_the_same_seed_and_no_other(name: str):
    assert tasks.make(name, 1, 2048) == tasks.make(name, 1, 2048)
    assert tasks.make(name, 1, 2048).document != tasks.make(name, 2, 2048).document


@pytest.mark.parametrize("name", tasks.names())
@pytest.mark.parametrize("density", [1 / 24, 1 / 12, 1 / 7])
def test_a_document_is_as_long_and_as_dense_as_asked(name: str, density: float):
    episode = tasks.make(name, 3, 2048, density, dialogues=6)
    assert len(episode.document) == 2048
    assert episode.document[0] == BOS
    assert len(facts_of(episode.document)) == round(2048 * density)
    assert len(episode.dialogues) == 6


@pytest.mark.parametrize("name", tasks.names())
def test_both_turns_ask_for_what_the_document_says_where_it_says_it(name: str):
    episode = tasks.make(name, 5, 2048, 1 / 12, dialogues=20)
    for dialogue in episode.dialogues:
        for question in (dialogue.first, dialogue.second):
            told = {episode.document[at] for at in question.needs}
            answer = {question.answer[index] for index in question.scored}
            assert answer <= told or answer == {NONE}
        assert not set(dialogue.first.needs) & set(dialogue.second.needs)


@pytest.mark.parametrize("name", tasks.names())
def test_the_right_answer_scores_in_full_and_an_empty_one_nothing(name: str):
    question = tasks.make(name, 7, 2048).dialogues[0].first
    assert question.right_count(question.answer) == len(question.scored)
    assert question.right_count(()) == 0
    assert question.right_count([BOS] * len(question.answer)) == 0


@pytest.mark.parametrize("name", ["needles", "near"])
def test_tag_and_key_together_name_one_fact(name: str):
    document = tasks.make(name, 1, 4096, 1 / 6).document
    assert max(Counter(fact[:2] for fact in facts_of(document)).values()) == 1


def test_near_keys_share_their_key_token_with_seven_others():
    document = tasks.make("near", 1, 4096, 1 / 16).document
    assert set(Counter(fact[1] for fact in facts_of(document)).values()) == {8}


def test_a_haystack_of_needles_only_fills_64k():
    document = tasks.make("needles", 1, 65536, DENSE).document
    assert len(facts_of(document)) == 65535 // 3
    assert max(Counter(fact[:2] for fact in facts_of(document)).values()) == 1


def test_the_majority_is_told_by_no_single_fact():
    episode = tasks.make("majority", 1, 2048)
    question = episode.dialogues[0].first
    votes = Counter(episode.document[at] for at in question.needs)
    assert votes.most_common(2)[0] == (question.answer[0], 4)
    assert votes.most_common(2)[1][1] == 1


def test_every_value_of_a_listed_key_is_scored_and_nothing_else():
    question = tasks.make("values", 1, 2048).dialogues[0].first
    assert [question.answer[index] in NODES for index in question.scored] == [True] * 4
    assert set(question.answer[1::3]) == {question.tokens[-1]}


def test_the_second_turn_of_a_dialogue_is_about_another_part_of_the_document():
    for dialogue in tasks.make("dialogue", 1, 4096, dialogues=10).dialogues:
        assert abs(dialogue.first.needs[0] - dialogue.second.needs[0]) >= 512


def test_an_unanswerable_key_stands_nowhere_in_the_document():
    episode = tasks.make("unanswerable", 1, 4096)
    assert all(dialogue.first.tokens[-1] not in episode.document for dialogue in episode.dialogues)


def test_more_facts_than_keys_are_refused_with_their_number():
    with pytest.raises(ValueError, match=r"make 2731 facts; recall tells 1536 apart"):
        tasks.make("recall", 1, 65536)
    with pytest.raises(KeyError):
        tasks.make("riddle", 1, 2048)


def test_the_tasks_need_the_standard_library_only():
    code = (
        "import sys, engine.lab.recall.tasks as t; [t.make(n, 1, 2048) for n in t.names()];"
        "sys.exit(bool({'torch', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
