"""Sends an answer whole or as server-sent events; the completion routes differ only in the words around the text."""

from __future__ import annotations

import json
import secrets
import time
from contextlib import closing
from typing import Any, Protocol

from engine.serving.errors import ApiError
from engine.serving.service import Exchange, Service
from engine.serving.ticket import Ask


class Words(Protocol):
    """How one route says things."""

    ID: str
    WHOLE: str
    CHUNK: str

    def choice(self, text: str, reason: str) -> dict[str, Any]:
        """The one choice of a whole answer."""
        ...

    def opening(self) -> list[dict[str, Any]]:
        """Choices sent before any text."""
        ...

    def part(self, text: str, reason: str | None) -> list[dict[str, Any]]:
        """Choices that bring text, the reason for ending, or both; one chunk each."""
        ...


def reply(words: Words, ask: Ask, service: Service, exchange: Exchange) -> None:
    """Serve a request to its end. ApiError before anything was sent; Disconnected or OSError when the client left."""
    head = {"id": f"{words.ID}-{secrets.token_hex(12)}", "created": int(time.time()), "model": service.model}
    if ask.stream:
        _stream(words, ask, service, exchange, head)
    else:
        _whole(words, ask, service, exchange, head)


def _whole(words: Words, ask: Ask, service: Service, exchange: Exchange, head: dict[str, Any]) -> None:
    with closing(service.answer(ask, exchange)) as pieces:
        piece = next(piece for piece in pieces if piece.reason is not None)
    choice = words.choice(piece.text, piece.reason or "")
    exchange.send_json(200, {**head, "object": words.WHOLE, "choices": [choice], "usage": _usage(ask, piece.tokens)})


def _stream(words: Words, ask: Ask, service: Service, exchange: Exchange, head: dict[str, Any]) -> None:
    begun, tokens = False, 0
    head = {**head, "object": words.CHUNK}
    # Every chunk says so when usage is asked for: null until the last.
    beside = {"usage": None} if ask.stream_usage else {}
    try:
        with closing(service.answer(ask, exchange)) as pieces:
            for piece in pieces:
                choices = [] if begun else words.opening()
                if not begun:
                    exchange.begin_events()
                    begun = True
                for choice in choices + words.part(piece.text, piece.reason):
                    exchange.send_event(json.dumps({**head, "choices": [choice], **beside}))
                tokens = piece.tokens
    except ApiError as error:
        if not begun:
            raise
        exchange.send_event(json.dumps(error.body()))
        exchange.end_events()
        return
    if ask.stream_usage:
        exchange.send_event(json.dumps({**head, "choices": [], "usage": _usage(ask, tokens)}))
    exchange.send_event("[DONE]")
    exchange.end_events()


def _usage(ask: Ask, generated: int) -> dict[str, int]:
    read = len(ask.prompt)
    return {"prompt_tokens": read, "completion_tokens": generated, "total_tokens": read + generated}
