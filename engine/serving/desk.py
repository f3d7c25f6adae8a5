"""The loop's side of serving: submits tickets to the engine and sends back what it says. Called between two steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.serving.errors import ApiError
from engine.serving.text import TextStream
from engine.serving.ticket import Piece, Ticket
from engine.tokenizer import Tokenizer

if TYPE_CHECKING:
    from engine.llm import Engine
    from engine.request import Request


class Desk:
    """``open`` are the tickets being served."""

    def __init__(self, engine: Engine, tokenizer: Tokenizer) -> None:
        self.engine, self.tokenizer = engine, tokenizer
        self.open: dict[Ticket, Request] = {}

    def receive(self, ticket: Ticket) -> None:
        """Serve a ticket, or drop it if it was cancelled."""
        if ticket.cancelled:
            if (request := self.open.pop(ticket, None)) is not None:
                self.engine.cancel(request)
            return
        ask = ticket.ask
        listener = _Listener(self, ticket, TextStream(self.tokenizer, ask.stops))
        try:
            self.open[ticket] = self.engine.submit(
                ask.prompt, ask.max_tokens, sampling=ask.sampling, listener=listener, turns=ask.turns
            )
        except ValueError as error:
            ticket.events.put(ApiError(400, str(error), code="context_length_exceeded"))
        except Exception as error:
            ticket.events.put(_failed(error))

    def fail(self, request: Request, error: Exception) -> None:
        """Tell whoever waits for this request that it cannot be served."""
        for ticket, served in list(self.open.items()):
            if served is request:
                del self.open[ticket]
                ticket.events.put(_failed(error))

    def close(self) -> None:
        """The engine ends: tell everybody who still waits."""
        for ticket in self.open:
            ticket.events.put(ApiError(503, "the engine is stopping", code="stopping"))
        self.open.clear()


def _failed(error: Exception) -> ApiError:
    # The kind of error and nothing else: its text could quote a prompt.
    return ApiError(500, f"the engine could not serve this request ({type(error).__name__})", code="request_failed")


class _Listener:
    """Hears one request's tokens inside the step and turns them into pieces."""

    def __init__(self, desk: Desk, ticket: Ticket, text: TextStream) -> None:
        self.desk, self.ticket, self.text = desk, ticket, text
        self.unsent = ""

    def __call__(self, request: Request, token: int) -> bool:
        """Whether the answer ends here because a stop string was met."""
        ready = "" if request.stopped else self.text.add(token)
        ended = self.text.stopped or request.finished
        if ended:
            ready += self.text.finish()
        self.unsent += ready
        if ended or (self.ticket.ask.stream and self.unsent):
            self._send(request, ended)
        return self.text.stopped

    def _send(self, request: Request, ended: bool) -> None:
        reason = None
        if ended:
            reason = "stop" if request.stopped or self.text.stopped else "length"
            self.desk.open.pop(self.ticket, None)
        self.ticket.events.put(Piece(self.unsent, len(request.generated), reason))
        self.unsent = ""
