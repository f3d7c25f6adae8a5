"""The recall task: documents, walks and the checker."""

import random
import subprocess
import sys

import pytest

from engine.lab.recall.task import (
    ASK,
    BOS,
    FILLER,
    KEY,
    NODES,
    expected,
    is_right,
    make_document,
    prompt,
    right_count,
    starts,
    walk,
)


def document_of(length: int, density: float = 1 / 24):
    return make_document(random.Random(7), length, density)


def test_every_fact_of_the_map_stands_in_the_document_and_no_other():
    document = document_of(4096)
    tokens = document.tokens
    written = {tokens[i + 1]: tokens[i + 2] for i, token in enumerate(tokens) if token == KEY}
    assert written == document.successor
    assert len(written) == round(4096 / 24)


def test_a_document_has_the_length_asked_for_and_only_filler_between_facts():
    document = document_of(2048, 1 / 8)
    assert len(document.tokens) == 2048
    assert document.tokens[0] == BOS
    node_tokens = [token for token in document.tokens if token in NODES]
    filler_tokens = [token for token in document.tokens if token in FILLER]
    assert len(node_tokens) == 2 * len(document.successor)
    assert len(filler_tokens) == 2048 - 1 - 3 * len(document.successor)


def test_facts_may_fill_the_whole_document():
    document = document_of(301, 100 / 301)
    assert len(document.successor) == 100
    assert document.tokens[1::3] == (KEY,) * 100


def test_facts_form_one_cycle_so_a_long_document_is_walked_128_steps_without_repeating():
    document = document_of(8192)
    start = starts(document, 128)[0]
    assert len({start, *walk(document, start, 128)}) == 129
    facts = len(document.successor)
    assert len(set(walk(document, start, facts))) == facts


def test_a_document_with_too_short_a_cycle_offers_no_start():
    document = document_of(1024)
    facts = len(document.successor)
    assert len(starts(document, facts - 1)) == facts
    assert starts(document, facts) == ()


def test_a_prompt_is_the_document_and_the_question():
    document = document_of(1024)
    start = starts(document, 8)[0]
    assert prompt(document, start) == (*document.tokens, ASK, start)


def test_a_wrong_token_does_not_spoil_the_rest():
    document = document_of(1024)
    start, *others = starts(document, 8)
    right = walk(document, start, 4)
    stray = next(key for key in others if key not in right)
    generated = (right[0], stray, *walk(document, stray, 2))
    assert right_count(document, start, right) == 4
    assert right_count(document, start, generated) == 3


def test_nothing_is_right_after_a_token_that_is_no_key():
    document = document_of(1024)
    filler = FILLER[0]
    assert not is_right(document, filler, starts(document, 1)[0])
    with pytest.raises(ValueError, match="not a key of this document"):
        expected(document, filler)
    with pytest.raises(ValueError, match="not a key of this document"):
        prompt(document, filler)


def test_the_same_seed_makes_the_same_document():
    assert document_of(512) == document_of(512)
    assert document_of(512) != make_document(random.Random(8), 512)


@pytest.mark.parametrize(("length", "density"), [(1024, 0.5), (24, 1 / 24), (100_000, 1 / 24)])
def test_facts_that_do_not_fit_are_refused_with_their_number(length, density):
    with pytest.raises(ValueError, match=f"make {round(length * density)} facts; expected 2 to"):
        make_document(random.Random(0), length, density)


def test_the_task_needs_the_standard_library_only():
    code = "import sys, engine.lab.recall.task; sys.exit(bool({'torch', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
