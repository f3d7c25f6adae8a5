"""Whole answers to given prompts, kept so that they can be compared and not read.

Of an answer stays, for each token, a digest of the answer up to it, keyed by the prompt: two answers to one prompt can
be compared token by token, and neither prompt nor answer can be had from it by anybody who has not the prompt.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvscope.bench.client import http
from kvscope.bench.client.http import Refused
from kvscope.bench.client.server import Server, headers
from kvscope.errors import SourceError, UsageError
from probes import border

MOST_PROMPTS, MOST_BYTES = 10_000, 64 << 20
_WORD = re.compile(r"\s*\S+")
_DIGEST_BYTES = 6


@dataclass(frozen=True, slots=True)
class Prompt:
    """Text or messages as they are sent; ``as_json``: the answer is to be JSON."""

    body: Mapping[str, Any]
    as_json: bool = False

    @property
    def key(self) -> bytes:
        """What digests of answers to it are keyed by."""
        return hashlib.blake2b(json.dumps(self.body, sort_keys=True).encode()).digest()


@dataclass(frozen=True, slots=True)
class Reply:
    """``digests`` one a token (a word where the server tells no tokens), of the answer up to it; ``logprobs`` likewise.

    ``valid``: whether it is JSON, where that was asked for.
    """

    digests: tuple[str, ...]
    logprobs: tuple[float, ...] = ()
    valid: bool | None = None

    def to_json(self) -> list[Any]:
        return [list(self.digests), list(self.logprobs), self.valid]

    @classmethod
    def from_json(cls, found: Any) -> Reply:
        """Read one back; TypeError or ValueError when it is none."""
        digests, logprobs, valid = found
        if valid not in (True, False, None):
            raise ValueError("expected true, false or null")
        return cls(tuple(str(one) for one in digests), tuple(float(one) for one in logprobs), valid)


def read_prompts(path: Path) -> list[Prompt]:
    """Read a line a prompt: text, or ``{prompt}`` or ``{messages}`` (with ``response_format``: JSON). UsageError."""
    try:
        lines = [line for line in border.read_file(path, MOST_BYTES).decode().splitlines() if line.strip()]
    except (OSError, ValueError, border.Refused) as error:
        raise UsageError(f"--prompts {path}: {getattr(error, 'strerror', None) or error}") from error
    if not 0 < len(lines) <= MOST_PROMPTS:
        raise UsageError(f"--prompts {path}: {len(lines)} prompts; expected 1 to {MOST_PROMPTS}, a line each")
    return [_prompt(line, f"{path}:{number}") for number, line in enumerate(lines, 1)]


def _prompt(line: str, where: str) -> Prompt:
    if not line.lstrip().startswith("{"):
        return Prompt({"prompt": line})
    try:
        found = border.document(line, where)
    except border.Refused as error:
        raise UsageError(str(error)) from error
    kept = {name: found[name] for name in ("prompt", "messages") if name in found}
    fits = isinstance(kept.get("prompt", ""), str | list) and isinstance(kept.get("messages", []), list)
    if len(kept) != 1 or not fits:
        raise UsageError(f"{where}: expected text, or an object with prompt (text or token ids) or messages (a list)")
    wanted = found.get("response_format")
    return Prompt(kept | ({"response_format": wanted} if wanted else {}), as_json=bool(wanted))


def digest_of(prompts: Sequence[Prompt]) -> str:
    """Tell whether two runs asked the same."""
    return hashlib.blake2b(b"".join(one.key for one in prompts), digest_size=8).hexdigest()


async def ask_all(
    server: Server, prompts: Sequence[Prompt], tokens: int, clients: int, tell: Callable[[], None]
) -> list[Reply]:
    """Ask every prompt once at temperature 0, ``clients`` at a time. SourceError when one is not answered."""
    found: dict[int, Reply] = {}
    waiting = iter(enumerate(prompts))

    async def client() -> None:
        for index, prompt in waiting:
            found[index] = await _ask(server, prompt, tokens)
            tell()

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(client())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [found[index] for index in range(len(prompts))]


async def _ask(server: Server, prompt: Prompt, tokens: int) -> Reply:
    chat = "messages" in prompt.body
    body = {"model": server.model, "max_tokens": tokens, "temperature": 0.0, "seed": 0, **prompt.body}
    path = "/v1/chat/completions" if chat else "/v1/completions"
    # vLLM tells token ids, which are there without a tokenizer too.
    logprobs: dict[str, object] = {"logprobs": True if chat else 1}
    ids: dict[str, object] = {"return_token_ids": True}
    try:
        async with asyncio.timeout(server.timeout_s):
            for more in (logprobs | ids, ids, {}):
                try:
                    text = await http.post(server.address, path, body | more, headers(server.key))
                    break
                except Refused as refused:
                    # A server that tells none of it; the last is the plain question.
                    if refused.status not in (400, 422, 501) or not more:
                        raise
        return reply_of(border.document(text, "the answer"), prompt)
    except (TimeoutError, OSError, EOFError, Refused, border.Refused, KeyError, TypeError, ValueError) as error:
        said = str(error) or type(error).__name__
        raise SourceError(f"{server.address.text}{path}: {border.printable(said, 200)}; expected an answer") from None


def reply_of(answer: Any, prompt: Prompt) -> Reply:
    """Return what is kept of an answer of ``/v1/completions`` or ``/v1/chat/completions``. KeyError, TypeError."""
    choice = answer["choices"][0]
    text = choice["message"]["content"] or "" if "message" in choice else choice["text"]
    told = choice.get("logprobs") or {}
    pieces, probabilities = _tokens(told)
    ids = choice.get("token_ids")
    if isinstance(ids, list) and ids:
        probabilities = probabilities if len(ids) == len(pieces) else []
        pieces = [f"{border.whole(one, 'token id')} " for one in ids]
    elif "".join(pieces).strip() != text.strip():
        # Bytes of a letter that spans tokens, or none at all: words are what can be compared.
        pieces, probabilities = [*_WORD.findall(text)], []
    hasher, digests = hashlib.blake2b(key=prompt.key, digest_size=_DIGEST_BYTES), []
    for piece in pieces:
        hasher.update(piece.encode())
        digests.append(hasher.copy().hexdigest())
    hasher.update(str(choice.get("finish_reason")).encode())
    # How it ended is a part of it: an answer that is the beginning of another is not the same.
    return Reply((*digests, hasher.hexdigest()), tuple(probabilities), _valid(text) if prompt.as_json else None)


def _tokens(told: Mapping[str, Any]) -> tuple[list[str], list[float]]:
    """Tokens and their log probabilities, of chat's shape or the older one."""
    if isinstance(told.get("content"), list):
        rows = [(one["token"], one["logprob"]) for one in told["content"]]
    else:
        rows = list(zip(told.get("tokens") or (), told.get("token_logprobs") or (), strict=False))
    pieces = [str(token) for token, _ in rows]
    return pieces, [round(border.number(one, "logprob"), 4) for _, one in rows]


def _valid(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
