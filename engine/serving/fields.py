"""Reads the fields of a request body; what is wrong, or is not supported here, is an ApiError that names the field."""

from __future__ import annotations

from typing import Any

from engine.sampler import Sampling
from engine.serving.errors import ApiError
from engine.serving.service import Service
from engine.serving.ticket import Ask
from probes.border import shown

MOST_STOPS, LONGEST_STOP = 16, 512
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "tools": ([],),
    "functions": ([],),
    "tool_choice": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
}
"""Fields that would change the answer and are not supported, with the values that ask for nothing."""


def number(body: dict[str, Any], name: str, default: float, low: float, high: float) -> float:
    """A number from ``low`` to ``high``; missing or null is ``default``."""
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        said = f"{name} is {shown(value)}; expected a number from {low:g} to {high:g}"
        raise ApiError(400, said, name, "invalid_value")
    return float(value)


def whole(body: dict[str, Any], name: str, low: int = -(2**63), high: int = 2**63 - 1) -> int | None:
    """A whole number from ``low`` to ``high``; None when missing or null."""
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        least = f" of at least {low}" if low > 0 else f" of at most {8 * 8} bits"
        raise ApiError(400, f"{name} is {shown(value)}; expected a whole number{least}", name, "invalid_value")
    return value


def writable(text: str, name: str) -> str:
    """The text; ApiError for one that holds half a character (a lone surrogate), which no vocabulary can take."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ApiError(400, f"{name}: half a character in it; expected Unicode text", name, "invalid_value") from None
    return text


def flag(body: dict[str, Any], name: str) -> bool:
    """True or false; missing or null is false."""
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise ApiError(400, f"{name} is {shown(value)}; expected true or false", name, "invalid_value")
    return bool(value)


def ask(body: dict[str, Any], prompt: list[int], service: Service, default_tokens: int | None) -> Ask:
    """The request for a prompt; ``default_tokens`` None means whatever the context has room for."""
    _refuse_unsupported(body)
    room = service.max_context - len(prompt)
    name = "max_completion_tokens" if body.get("max_completion_tokens") is not None else "max_tokens"
    wanted = whole(body, name, 1)
    if not prompt:
        raise ApiError(400, "the prompt is empty; expected at least one token", "prompt", "invalid_value")
    if room < (wanted or 1):
        raise ApiError(
            400,
            f"{len(prompt)} prompt tokens and {wanted or 1} to generate; expected {service.max_context} at most",
            name if room >= 1 else "prompt",
            "context_length_exceeded",
        )
    options = body.get("stream_options") or {}
    if not isinstance(options, dict):
        raise ApiError(400, "stream_options: expected an object", "stream_options", "invalid_value")
    return Ask(
        tuple(prompt),
        wanted or min(room, default_tokens or room),
        _sampling(body, service),
        _stops(body),
        flag(body, "stream"),
        flag(options, "include_usage"),
    )


def _sampling(body: dict[str, Any], service: Service) -> Sampling:
    return Sampling(
        number(body, "temperature", 1.0, 0.0, 2.0),
        number(body, "top_p", 1.0, 0.0, 1.0),
        whole(body, "seed"),
        frozenset() if flag(body, "ignore_eos") else service.tokenizer.stop_ids,
    )


def _stops(body: dict[str, Any]) -> tuple[str, ...]:
    value = body.get("stop") or []
    stops = [value] if isinstance(value, str) else value
    fit = isinstance(stops, list) and len(stops) <= MOST_STOPS
    if not fit or not all(isinstance(stop, str) and 0 < len(stop) <= LONGEST_STOP for stop in stops):
        said = f"stop: expected a string of up to {LONGEST_STOP} characters, or up to {MOST_STOPS} of them, none empty"
        raise ApiError(400, said, "stop", "invalid_value")
    return tuple(writable(stop, "stop") for stop in stops)


def _refuse_unsupported(body: dict[str, Any]) -> None:
    for name, neutral in NEUTRAL.items():
        value = body.get(name)
        if value is not None and value not in neutral:
            expected = " or ".join(repr(item) for item in neutral)
            raise ApiError(400, f"{name} is not supported; leave it out or send {expected}", name, "unsupported_value")
