"""The load asks what it says it asks, and no more at a time than it has clients."""

from __future__ import annotations

import pytest

from engine.knobs import KnobError
from engine.lab.recall import task
from engine.lab.workload import Load, RecallLoad
from engine.request import Request

LOAD = Load(clients=3, documents=2, document_tokens=480, new_tokens=6)


class Sink:
    """Takes requests where an engine would."""

    def __init__(self) -> None:
        self.taken: list[Request] = []
        self.now = 0.0

    def submit(self, prompt, count, check=None, *, turns=()):  # type: ignore[no-untyped-def]
        self.taken.append(Request(len(self.taken), prompt, count, self.now, check, turns=turns))
        return self.taken[-1]

    def answer(self, index: int) -> None:
        """Finish a request with the right answer."""
        request = self.taken[index]
        while not request.finished:
            before = request.tokens(request.length - 1, request.length)[0]
            assert request.check is not None
            right = [token for token in task.NODES if request.check(before, token)]
            request.accept(right[0], self.now)


def asked(load: Load) -> tuple[RecallLoad, Sink]:
    sink = Sink()
    made = RecallLoad(load, clock=lambda: sink.now)
    made.top_up(sink)  # type: ignore[arg-type]
    return made, sink


def test_every_client_waits_for_its_answer() -> None:
    made, sink = asked(LOAD)
    made.top_up(sink)  # type: ignore[arg-type]
    assert len(sink.taken) == 3
    sink.answer(1)
    made.top_up(sink)  # type: ignore[arg-type]
    assert len(sink.taken) == 4
    assert sink.taken[0].prompt[:480] == sink.taken[2].prompt[:480] != sink.taken[1].prompt[:480]
    assert all(request.turns == () for request in sink.taken)


def test_a_client_thinks_before_it_asks_again() -> None:
    made, sink = asked(Load(clients=1, documents=1, document_tokens=480, new_tokens=4, think_ms=500))
    sink.answer(0)
    made.top_up(sink)  # type: ignore[arg-type]
    sink.now = 0.4
    made.top_up(sink)  # type: ignore[arg-type]
    assert len(sink.taken) == 1
    sink.now = 0.6
    made.top_up(sink)  # type: ignore[arg-type]
    assert len(sink.taken) == 2


def test_a_conversation_grows_and_asks_about_old_facts() -> None:
    load = Load(clients=1, documents=1, document_tokens=480, new_tokens=4, question_tokens=5, turns=3)
    made, sink = asked(load)
    for turn in range(3):
        sink.answer(turn)
        made.top_up(sink)  # type: ignore[arg-type]
    first, second, third, again = sink.taken
    assert first.turns == (0, 32)
    assert second.turns == (0, 32, len(first.prompt) + 4)
    assert third.turns == (*second.turns, len(second.prompt) + 4)
    assert third.prompt[: len(second.prompt)] == second.prompt
    assert third.prompt[-1] in first.prompt
    assert again.turns == (0, 32)
    assert len(third.prompt) + 4 == load.longest


def test_lengths_have_a_long_tail() -> None:
    _, sink = asked(Load(clients=200, documents=200, document_tokens=960, new_tokens=30, long_tail=1, jitter=1))
    lengths = [len(request.prompt) - 2 for request in sink.taken]
    assert set(lengths) == {120, 480, 960}
    assert 0.6 < lengths.count(120) / 200 < 0.8
    assert len({request.max_new_tokens for request in sink.taken}) > 5


def test_a_fresh_document_is_asked_about_once() -> None:
    made, sink = asked(Load(clients=2, documents=2, document_tokens=480, new_tokens=4, fresh=1))
    for index in (0, 1):
        sink.answer(index)
    made.top_up(sink)  # type: ignore[arg-type]
    assert len({request.prompt[:480] for request in sink.taken}) == 4


def test_a_load_that_cannot_be_names_its_knob() -> None:
    with pytest.raises(KnobError, match=r"load\.new_tokens"):
        RecallLoad(Load(clients=1, documents=1, document_tokens=480, new_tokens=96))
    with pytest.raises(KnobError, match=r"load\.turns is 0"):
        Load(turns=0)
    with pytest.raises(KnobError, match=r"load\.turn: expected one of"):
        Load().with_text({"turn": "2"})
