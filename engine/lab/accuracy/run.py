"""Feed given answers to an engine through its own decode path and hear what it would have said."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.lab.accuracy.score import Answers
from engine.lab.recall.tasks import Episode, Question
from engine.llm import Engine
from engine.request import Request
from engine.sampler import Sampling

Tick = Callable[[Engine], None]
TOGETHER = 8
"""Questions that one request asks one after another."""


@dataclass(frozen=True)
class Script:
    """A prompt, the tokens that are fed behind it, and the places among them whose logits are wanted."""

    prompt: tuple[int, ...]
    fed: tuple[int, ...]
    scored: tuple[int, ...]
    turns: tuple[int, ...] = ()


class Hearing:
    """Keeps the rows of logits that scripts ask for."""

    def __init__(self) -> None:
        self._wanted: dict[int, frozenset[int]] = {}
        self.rows: dict[int, list[Tensor]] = {}

    def follow(self, request: Request, scored: Sequence[int]) -> None:
        self._wanted[request.id], self.rows[request.id] = frozenset(scored), []

    def tokens(self, requests: Sequence[Request], logits: Tensor) -> None:
        for row, request in enumerate(requests):
            if len(request.generated) in self._wanted.get(request.id, ()):
                self.rows[request.id].append(logits[row].float().clone())


def hear(engine: Engine, scripts: Sequence[Script], tick: Tick = lambda _: None) -> list[Tensor]:
    """Logits [scored, vocab] of every script, all of them submitted at once."""
    hearing = Hearing()
    engine.judge, requests = hearing, []
    for script in scripts:
        forced = Sampling(forced=script.fed)
        request = engine.submit(script.prompt, len(script.fed), sampling=forced, turns=script.turns)
        hearing.follow(request, script.scored)
        requests.append(request)
    while engine.has_work:
        engine.step()
        tick(engine)
    engine.judge = None
    return [torch.stack(hearing.rows[request.id]) for request in requests]


def said(questions: Sequence[Question]) -> tuple[int, ...]:
    """A turn as it stands in a conversation: every question followed by its answer."""
    return tuple(token for one in questions for token in (*one.tokens, *one.answer))


def script_of(before: tuple[int, ...], questions: Sequence[Question], turns: tuple[int, ...]) -> Script:
    """Ask behind what was said before. One token of the first question stands in the prompt, all else is decoded:
    a prompt's own pass reads everything that is there, whatever decode reads, and would flatter.
    """
    scored, place = [], -1
    for one in questions:
        scored += [place + len(one.tokens) + index for index in one.scored]
        place += len(one.tokens) + len(one.answer)
    words = said(questions)
    return Script((*before, words[0]), words[1:], tuple(scored), turns)


def ask(engine: Engine, episode: Episode, aware: bool, tick: Tick = lambda _: None) -> tuple[Answers, Answers]:
    """Both turns of every dialogue. With ``aware`` a first question also stands in its prompt, to be seen by what
    decides importance, and is asked again behind it.
    """
    first, second = [], []
    start, step = len(episode.document), 1 if aware else TOGETHER
    for one in range(0, len(episode.dialogues), step):
        group = episode.dialogues[one : one + step]
        early, late = [pair.first for pair in group], [pair.second for pair in group]
        before = (*episode.document, *(early[0].tokens if aware else ()))
        first.append(script_of(before, early, (0, start)))
        before = (*before, *said(early))
        second.append(script_of(before, late, (0, start, len(before))))
    firsts, seconds = [pair.first for pair in episode.dialogues], [pair.second for pair in episode.dialogues]
    return (
        answers_of(firsts, hear(engine, first, tick)),
        answers_of(seconds, hear(engine, second, tick)),
    )


def answers_of(questions: Sequence[Question], logits: Sequence[Tensor]) -> Answers:
    tokens = torch.tensor([one.answer[index] for one in questions for index in one.scored])
    return Answers(torch.cat(list(logits)), tokens, tuple(len(one.scored) for one in questions))
