"""What a handler needs to know of the engine, and the one way it reaches it. Nothing here changes while it serves."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from queue import Empty
from threading import Event
from typing import Any, Protocol

from engine.serving.errors import ApiError, Disconnected
from engine.serving.ticket import Ask, Piece, Ticket
from engine.tokenizer import Tokenizer
from probes.border import shown

LOOK_S = 0.2
"""Seconds between two looks at whether a silent client is still there."""


class Exchange(Protocol):
    """One HTTP request and the answer to it."""

    body: dict[str, Any]

    def gone(self) -> bool:
        """Whether the client closed its side."""
        ...

    def send_json(self, status: int, body: dict[str, Any]) -> None:
        """Answer whole."""
        ...

    def begin_events(self) -> None:
        """Answer as a stream of server-sent events from here on."""
        ...

    def send_event(self, data: str) -> None:
        """One event. Raises OSError when the client is gone."""
        ...

    def end_events(self) -> None:
        """Nothing follows."""
        ...


@dataclass(frozen=True)
class Service:
    """``post`` hands a ticket to the engine's loop; ``stopping`` is set when that loop ends."""

    model: str
    tokenizer: Tokenizer
    vocab_size: int
    max_context: int
    created: int
    post: Callable[[Ticket], None]
    stopping: Event = field(default_factory=Event)

    def check_model(self, name: Any) -> None:
        """ApiError 404 for a model that is not the one served; a request may leave the name out."""
        if name in (None, "", self.model):
            return
        raise ApiError(
            404, f"model {shown(name)} is not served here; this is {self.model!r}", "model", "model_not_found"
        )

    def answer(self, ask: Ask, exchange: Exchange) -> Generator[Piece, None, None]:
        """Have a request served; ApiError when it is refused, Disconnected when its client leaves (it is cancelled)."""
        ticket = Ticket(ask)
        self.post(ticket)
        ended = False
        try:
            while not ended:
                piece = self._next(ticket, exchange)
                ended = piece.reason is not None
                yield piece
        finally:
            if not ended:
                ticket.cancelled = True
                self.post(ticket)

    def _next(self, ticket: Ticket, exchange: Exchange) -> Piece:
        while True:
            if exchange.gone():
                raise Disconnected
            try:
                event = ticket.events.get(timeout=LOOK_S)
            except Empty:
                if self.stopping.is_set():
                    raise ApiError(503, "the engine is stopping", code="stopping") from None
                continue
            if isinstance(event, ApiError):
                raise event
            return event
