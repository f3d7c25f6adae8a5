"""One completion as a stream, and what became of it, in the definitions that benchmarks agree on (else vLLM's).

TTFT: sent to first token, queue included, its text complete or not. TPOT: (last − first) / (output tokens − 1), one
number a request. ITL: every gap between two successive chunks of the stream. E2E: sent to last token.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from time import perf_counter
from typing import Any

from kvscope.bench.client import http
from kvscope.bench.client.http import Address, Refused
from kvscope.errors import SourceError


@dataclass(frozen=True, slots=True)
class Outcome:
    """Times in seconds of one clock; ``error`` says why there is no answer; ``late_s``: sent after it was due."""

    sent_s: float
    wanted_in: int
    wanted_out: int
    late_s: float = 0.0
    token_s: tuple[float, ...] = field(default=())
    tokens_in: int | None = None
    tokens_out: int = 0
    error: str = ""

    @property
    def ok(self) -> bool:
        return not self.error and bool(self.token_s)

    @property
    def ended_s(self) -> float:
        return self.token_s[-1] if self.token_s else self.sent_s

    @property
    def ttft_s(self) -> float:
        return self.token_s[0] - self.sent_s

    @property
    def e2e_s(self) -> float:
        return self.token_s[-1] - self.sent_s

    @property
    def tpot_s(self) -> float | None:
        """None for an answer of one token: it has no time between tokens."""
        return (self.token_s[-1] - self.token_s[0]) / (self.tokens_out - 1) if self.tokens_out > 1 else None

    @property
    def gaps_s(self) -> list[float]:
        return [later - earlier for earlier, later in pairwise(self.token_s)]

    def as_json(self) -> dict[str, Any]:
        """Return it with times counted from its sending, in whole microseconds."""
        return {
            "sent_s": round(self.sent_s, 6),
            "late_s": round(self.late_s, 6),
            "in": [self.wanted_in, self.tokens_in],
            "out": [self.wanted_out, self.tokens_out],
            "token_us": [round((t - self.sent_s) * 1e6) for t in self.token_s],
            "error": self.error,
        }

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Outcome:
        """Read one back; KeyError, TypeError or ValueError when it is none."""
        sent = float(found["sent_s"])
        times = tuple(sent + int(us) / 1e6 for us in found["token_us"])
        wanted_in, tokens_in = found["in"]
        wanted_out, tokens_out = found["out"]
        return cls(sent, wanted_in, wanted_out, found["late_s"], times, tokens_in, tokens_out, str(found["error"]))


PATH = "/v1/completions"


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: the prompt as token numbers or as text, and how many tokens are wanted back."""

    prompt: Sequence[int] | str
    tokens_in: int
    tokens_out: int


@dataclass(frozen=True, slots=True)
class Server:
    """An OpenAI-compatible server; ``longest`` tokens a request may have, when it says so."""

    address: Address
    model: str
    longest: int | None = None
    key: str = ""
    timeout_s: float = 600.0
    ignore_eos: bool = True

    async def complete(self, ask: Ask, due_s: float | None = None) -> Outcome:
        """Stream one completion. Never raises for what the server does: that is in the outcome's ``error``."""
        sent = perf_counter()
        outcome = Outcome(sent, ask.tokens_in, ask.tokens_out, max(0.0, sent - due_s) if due_s is not None else 0.0)
        chunks: list[tuple[float, bool]] = []
        usage: dict[str, Any] = {}
        error = ""
        try:
            async with asyncio.timeout(self.timeout_s):
                async for now, data in http.events(self.address, PATH, self._body(ask), headers(self.key)):
                    if data == "[DONE]":
                        break
                    error = _take(now, data, chunks, usage) or error
        except TimeoutError:
            error = f"no end within {self.timeout_s:g} s"
        except (Refused, OSError, EOFError, asyncio.LimitOverrunError) as failure:
            error = str(failure) or type(failure).__name__
        tokens_out = _count(usage, "completion_tokens")
        times = token_times(chunks, tokens_out)
        if not error and not times:
            error = "the stream ended without a token"
        return replace(
            outcome,
            token_s=times,
            tokens_in=_count(usage, "prompt_tokens"),
            tokens_out=tokens_out or len(times),
            error=error,
        )

    def _body(self, ask: Ask) -> dict[str, object]:
        prompt = ask.prompt if isinstance(ask.prompt, str) else list(ask.prompt)
        body: dict[str, object] = {
            "model": self.model,
            "prompt": prompt,
            "max_tokens": ask.tokens_out,
            "temperature": 0.0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        return {**body, "ignore_eos": True} if self.ignore_eos else body


async def find_server(address: Address, model: str = "", key: str = "", timeout_s: float = 10.0) -> Server:
    """Ask which model is served; SourceError when nobody answers, or not as an OpenAI-compatible server does."""
    try:
        async with asyncio.timeout(timeout_s):
            found = json.loads(await http.get(address, "/v1/models", headers(key)))
        models = {str(one["id"]): one for one in found["data"]}
    except (OSError, TimeoutError, EOFError) as error:
        raise SourceError(f"{address.text}: {error or 'no answer'}; expected an OpenAI-compatible server") from None
    except (Refused, ValueError, KeyError, TypeError) as error:
        raise SourceError(f"{address.text}/v1/models: {error}; expected an OpenAI-compatible server") from None
    if not models or (model and model not in models):
        raise SourceError(f"{address.text}: no model {model!r}; served: {', '.join(models) or 'none'}")
    name = model or next(iter(models))
    longest = models[name].get("max_model_len")
    return Server(address, name, longest if isinstance(longest, int) else None, key)


def headers(key: str) -> dict[str, str]:
    """Return the authorisation a server wants."""
    return {"Authorization": f"Bearer {key}"} if key else {}


def token_times(chunks: Sequence[tuple[float, bool]], tokens_out: int | None) -> tuple[float, ...]:
    """Return when tokens came, of chunks (time, whether it shows text) in an answer of so many tokens.

    A chunk without text is a token whose letter is not complete yet, or none: a server's opening or closing word. Where
    chunks are as many as tokens, each is one. Where they are fewer, tokens came together, and a chunk without text is
    believed only after one with text: an opening word taken for a token would hide the whole TTFT.
    """
    shown = [index for index, (_, text) in enumerate(chunks) if text]
    if tokens_out is None or len(chunks) > tokens_out:
        return tuple(chunks[index][0] for index in shown)
    first = 0 if len(chunks) == tokens_out else shown[0] if shown else len(chunks)
    return tuple(now for now, _ in chunks[first:])


def _take(now: float, data: str, chunks: list[tuple[float, bool]], usage: dict[str, Any]) -> str:
    """Note one event; returns what it complains of (some servers refuse in a stream that began with 200)."""
    try:
        event = json.loads(data)
    except ValueError:
        return "an event of the stream is not JSON"
    if not isinstance(event, dict):
        return "an event of the stream is not an object"
    if error := event.get("error"):
        return str(error.get("message", error) if isinstance(error, dict) else error)[:200]
    if isinstance(event.get("usage"), dict):
        usage.update(event["usage"])
    choices = event.get("choices") or []
    if choices:
        chunks.append((now, bool(choices[0].get("text") or (choices[0].get("delta") or {}).get("content"))))
    return ""


def _count(usage: dict[str, Any], name: str) -> int | None:
    value = usage.get(name)
    return value if isinstance(value, int) and value > 0 else None
