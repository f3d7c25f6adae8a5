"""The next turn of a conversation, laid out by the model's own chat template."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine.serving import fields
from engine.serving.errors import ApiError
from engine.serving.reply import reply
from engine.serving.service import Exchange, Service
from engine.tokenizer import TextError

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


class ChatCompletions:
    METHOD, PATH = "POST", "/v1/chat/completions"
    ID, WHOLE, CHUNK = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def handle(self, exchange: Exchange, service: Service) -> None:
        body = exchange.body
        service.check_model(body.get("model"))
        try:
            conversation = service.tokenizer.chat(_messages(body))
        except TextError as error:
            raise ApiError(400, str(error), "messages", "invalid_value") from None
        ask = replace(fields.ask(body, conversation.tokens, service, None), turns=conversation.turns)
        reply(self, ask, service, exchange)

    def choice(self, text: str, reason: str) -> dict[str, Any]:
        message = {"role": "assistant", "content": text, "refusal": None}
        return {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}

    def opening(self) -> list[dict[str, Any]]:
        return [_delta({"role": "assistant", "content": ""}, None)]

    def part(self, text: str, reason: str | None) -> list[dict[str, Any]]:
        said = [_delta({"content": text}, None)] if text else []
        return said + ([_delta({}, reason)] if reason else [])


ROUTE = ChatCompletions()


def _delta(delta: dict[str, str], reason: str | None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}


def _messages(body: dict[str, Any]) -> list[dict[str, str]]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ApiError(400, "messages: expected a list of at least one", "messages", "invalid_value")
    return [_message(message, f"messages[{at}]") for at, message in enumerate(messages)]


def _message(message: Any, where: str) -> dict[str, str]:
    role = message.get("role") if isinstance(message, dict) else None
    if not isinstance(role, str) or role not in ROLES:
        raise ApiError(400, f"{where}.role: expected one of {', '.join(ROLES)}", "messages", "invalid_value")
    content = message.get("content")
    parts = [{"type": "text", "text": content or ""}] if content is None or isinstance(content, str) else content
    if not isinstance(parts, list) or not all(_is_text(part) for part in parts):
        raise ApiError(400, f"{where}.content: expected text", "messages", "invalid_value")
    content = "".join(fields.writable(part["text"], "messages") for part in parts)
    return {"role": ROLES[role], "content": content}


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)
