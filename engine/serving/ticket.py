"""One request on its way between a handler's thread and the engine's loop."""

from __future__ import annotations

from dataclasses import dataclass, field
from queue import SimpleQueue

from engine.sampler import Sampling
from engine.serving.errors import ApiError


@dataclass(frozen=True, slots=True)
class Ask:
    """What a client wants, checked. ``stops`` are strings; ``stream`` sends text as it comes."""

    prompt: tuple[int, ...]
    max_tokens: int
    sampling: Sampling
    stops: tuple[str, ...] = ()
    stream: bool = False
    stream_usage: bool = False
    turns: tuple[int, ...] = ()
    """First tokens of a conversation's turns."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Text to send; ``reason`` (stop, length) on the last one, ``tokens`` generated so far."""

    text: str
    tokens: int
    reason: str | None = None


@dataclass(eq=False)
class Ticket:
    """Posted to the loop once to be served, and once more with ``cancelled`` set when its client is gone."""

    ask: Ask
    events: SimpleQueue[Piece | ApiError] = field(default_factory=SimpleQueue)
    cancelled: bool = False
