"""A real load the engine can put on itself: clients that ask questions about shared documents, one after another.

Closed loop: each client sends its next request when its last one ended, so the offered load is the number of clients.
Every generated token is one recall and is checked against the document (see `engine.recall.task`).
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING

from engine.knobs import KnobError
from engine.recall import task

if TYPE_CHECKING:
    from engine.llm import Engine

PREFIX = "load."


@dataclass(frozen=True, slots=True)
class Load:
    """``clients`` requests are outstanding at any time; each asks about one document and generates ``new_tokens``.

    ``question_tokens`` of filler stand before the question: the part of the prompt that no prefix cache can hold.
    """

    clients: int = 0
    documents: int = 3
    document_tokens: int = 8192
    new_tokens: int = 96
    question_tokens: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            least = 0 if field.name in ("clients", "question_tokens", "seed") else 1
            if getattr(self, field.name) < least:
                raise KnobError(f"knob load.{field.name} is {getattr(self, field.name)}, expected at least {least}")

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
                raise KnobError(f"knob load.{name} is {text!r}, expected a whole number") from None
        return replace(self, **values)

    def as_text(self) -> dict[str, str]:
        return {PREFIX + field.name: str(getattr(self, field.name)) for field in fields(self)}

    @property
    def longest(self) -> int:
        """Tokens of the longest request this load sends."""
        return self.document_tokens + self.question_tokens + 2 + self.new_tokens


class RecallLoad:
    """Keeps ``load.clients`` requests outstanding on an engine."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self._random = random.Random(load.seed)
        self._documents = [task.make_document(self._random, load.document_tokens) for _ in range(load.documents)]
        self._starts = [task.starts(document, load.new_tokens) for document in self._documents]
        if not all(self._starts):
            facts = len(self._documents[0].successor)
            raise KnobError(
                f"knob load.new_tokens is {load.new_tokens}, expected fewer than the {facts} facts of a document"
            )
        self._next = 0

    def top_up(self, engine: Engine) -> None:
        """Send requests until every client has one outstanding."""
        scheduler = engine.scheduler
        for _ in range(self.load.clients - len(scheduler.waiting) - len(scheduler.running)):
            self._send(engine)

    def _send(self, engine: Engine) -> None:
        # Round robin: the documents are asked about equally often, whatever the seed.
        which = self._next % len(self._documents)
        self._next += 1
        document = self._documents[which]
        start = self._random.choice(self._starts[which])
        filler = tuple(self._random.choices(task.FILLER, k=self.load.question_tokens))
        prompt = (*document.tokens, *filler, task.ASK, start)
        engine.submit(prompt, self.load.new_tokens, check=partial(task.is_right, document))
