"""A real load the engine can put on itself: clients that ask questions about shared documents, one after another.

Closed loop: each client sends its next request when its last one ended, so the offered load is the number of clients.
Every generated token is one recall and is checked against the document (see `engine.lab.recall.task`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from engine.knobs import KnobError
from engine.lab.recall import task
from probes.border import shown

if TYPE_CHECKING:
    from engine.llm import Engine
    from engine.request import Request

PREFIX = "load."
MOST_TOKENS = 1 << 24
_MOST = {"clients": 4096, "documents": 65_536, "turns": 1000, "think_ms": 86_400_000, "seed": 2**63 - 1}
_AT_ONCE = 256
"""Requests sent between two steps at most: preparing them takes time in which nothing else is done."""
SYSTEM_TOKENS = 32
"""A conversation's first tokens, which stand for its system prompt."""
LONG_TAIL = ((8, 0.7), (2, 0.2), (1, 0.1))
"""The article's mix (§6.4): divisor of the document's length, share of the documents."""
_FROM_ZERO = ("clients", "question_tokens", "seed", "think_ms", "long_tail", "jitter", "fresh", "circle")


@dataclass(frozen=True, slots=True)
class Load:
    """``clients`` requests are outstanding at any time; each asks about one document and generates ``new_tokens``.

    ``question_tokens`` of filler stand before the question: the part of the prompt that no prefix cache can hold.
    ``turns`` questions make one conversation, later ones about old facts. A client pauses for ``think_ms`` between two
    requests. Switches, 0 or 1: ``long_tail`` makes 70 % of the documents an eighth and 20 % half as long, ``jitter``
    lets answers be a quarter as long or any length up to the whole, ``fresh`` never asks about a document twice,
    ``circle`` lets an answer go round the facts of its document more than once.
    """

    clients: int = 0
    documents: int = 3
    document_tokens: int = 8192
    new_tokens: int = 96
    question_tokens: int = 0
    turns: int = 1
    think_ms: int = 0
    long_tail: int = 0
    jitter: int = 0
    fresh: int = 0
    circle: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            least = 0 if field.name in _FROM_ZERO else 1
            value, most = getattr(self, field.name), _MOST.get(field.name, MOST_TOKENS)
            if not least <= value <= most:
                raise KnobError(f"knob load.{field.name} is {shown(value)}, expected from {least} to {most}")
        if self.documents * self.document_tokens > MOST_TOKENS or self.longest > MOST_TOKENS:
            raise KnobError(f"a load of more than {MOST_TOKENS} tokens to make, expected fewer or shorter documents")

    def with_text(self, changes: Mapping[str, str]) -> Load:
        """Return a copy with ``changes`` (names without ``load.``) applied; KnobError names what is wrong."""
        known = [field.name for field in fields(self)]
        values = {}
        for name, text in changes.items():
            if name not in known:
                raise KnobError(f"knob load.{name}: expected one of {', '.join(PREFIX + field for field in known)}")
            try:
                values[name] = int(text)
            except ValueError:
                raise KnobError(f"knob load.{name} is {shown(text)}, expected a whole number") from None
        return replace(self, **values)

    def as_text(self) -> dict[str, str]:
        return {PREFIX + field.name: str(getattr(self, field.name)) for field in fields(self)}

    @property
    def longest(self) -> int:
        """Tokens of the longest request this load sends."""
        return self.document_tokens + self.turns * (self.question_tokens + 2 + self.new_tokens)


class Text(NamedTuple):
    """A document and the keys one may ask for."""

    document: task.Document
    starts: tuple[int, ...]


class Client:
    """One of the load's clients: what it is talking about, what was said so far, and the request it waits for."""

    def __init__(self) -> None:
        self.text: Text | None = None
        self.said: tuple[int, ...] = ()
        self.turns: tuple[int, ...] = ()
        self.request: Request | None = None
        self.free_at_s = 0.0


class RecallLoad:
    """Keeps ``load.clients`` requests outstanding on an engine; answers are ``checked`` if the model knows the task."""

    def __init__(self, load: Load, *, checked: bool = True, clock: Callable[[], float] = monotonic) -> None:
        self.load, self.checked, self._clock = load, checked, clock
        self._random = random.Random(load.seed)
        self._texts = [self._make() for _ in range(load.documents)]
        self._clients = [Client() for _ in range(load.clients)]
        self._next = 0

    def top_up(self, engine: Engine) -> None:
        """Let every client whose last request ended, and who has thought long enough, send the next one."""
        now, sent = self._clock(), 0
        for client in self._clients:
            if client.request is not None and client.request.finished:
                client.said = (*client.request.prompt, *client.request.generated)
                client.request, client.free_at_s = None, now + self.load.think_ms / 1000
            if client.request is None and now >= client.free_at_s:
                client.request = self._send(engine, client)
                sent += 1
                if sent >= _AT_ONCE:
                    return

    def _send(self, engine: Engine, client: Client) -> Request:
        if client.text is None or len(client.turns) > self.load.turns:
            client.text, client.turns = self._choose(), (0,)
            client.said = client.text.document.tokens
            asked_at = SYSTEM_TOKENS
        else:
            asked_at = len(client.said)
        (document, starts), load = client.text, self.load
        client.turns = (*client.turns, asked_at)
        most = load.new_tokens if load.circle else min(load.new_tokens, len(document.successor) - 1)
        count = self._random.randint(max(1, most // 4), most) if load.jitter else most
        start = self._random.choice(starts)
        filler = tuple(self._random.choices(task.FILLER, k=load.question_tokens))
        check = partial(task.is_right, document) if self.checked else None
        turns = client.turns if load.turns > 1 else ()
        return engine.submit((*client.said, *filler, task.ASK, start), count, check=check, turns=turns)

    def _choose(self) -> Text:
        # Round robin: the documents are asked about equally often, whatever the seed.
        which = self._next % len(self._texts)
        self._next += 1
        if self.load.fresh and self._next > len(self._texts):
            self._texts[which] = self._make()
        return self._texts[which]

    def _make(self) -> Text:
        length = self.load.document_tokens
        if self.load.long_tail:
            divisors, shares = [divisor for divisor, _ in LONG_TAIL], [share for _, share in LONG_TAIL]
            length //= self._random.choices(divisors, shares)[0]
        document = task.make_document(self._random, length)
        if not (self.load.long_tail or self.load.circle) and self.load.new_tokens >= len(document.successor):
            raise KnobError(
                f"knob load.new_tokens is {self.load.new_tokens}, expected fewer than the {len(document.successor)} "
                f"facts of a document"
            )
        return Text(document, task.starts(document, 1))
