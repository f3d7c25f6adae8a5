"""What went wrong with a request, in the form OpenAI's clients read."""

from __future__ import annotations

from typing import Any


class ApiError(Exception):
    """Ends a request with ``status``; ``param`` is the field at fault, ``code`` a word for programs."""

    def __init__(self, status: int, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code

    def body(self) -> dict[str, Any]:
        kind = {404: "not_found_error", 500: "server_error", 503: "server_error"}.get(
            self.status, "invalid_request_error"
        )
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


class Disconnected(Exception):
    """The client is gone; nobody reads an answer."""
