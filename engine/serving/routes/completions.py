"""Text goes on where a prompt ends. A prompt is a string or a list of token numbers."""

from __future__ import annotations

from typing import Any

from engine.serving import fields
from engine.serving.errors import ApiError
from engine.serving.reply import reply
from engine.serving.service import Exchange, Service
from engine.tokenizer import TextError

DEFAULT_TOKENS = 16
"""OpenAI's default for this route."""


class Completions:
    METHOD, PATH = "POST", "/v1/completions"
    ID, WHOLE, CHUNK = "cmpl", "text_completion", "text_completion"

    def handle(self, exchange: Exchange, service: Service) -> None:
        body = exchange.body
        service.check_model(body.get("model"))
        reply(self, fields.ask(body, _prompt(body, service), service, DEFAULT_TOKENS), service, exchange)

    def choice(self, text: str, reason: str | None) -> dict[str, Any]:
        return {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}

    def opening(self) -> list[dict[str, Any]]:
        return []

    def part(self, text: str, reason: str | None) -> list[dict[str, Any]]:
        return [self.choice(text, reason)]


ROUTE = Completions()


def _prompt(body: dict[str, Any], service: Service) -> list[int]:
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str):
        try:
            return service.tokenizer.encode(fields.writable(prompt, "prompt"))
        except TextError as error:
            raise ApiError(400, str(error), "prompt", "invalid_value") from None
    if not isinstance(prompt, list) or not all(type(token) is int for token in prompt):
        raise ApiError(
            400, "prompt: expected one string or one list of token numbers a request", "prompt", "invalid_value"
        )
    if not all(0 <= token < service.vocab_size for token in prompt):
        raise ApiError(400, f"prompt: expected tokens from 0 to {service.vocab_size - 1}", "prompt", "invalid_value")
    return prompt
