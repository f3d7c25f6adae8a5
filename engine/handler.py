"""One HTTP connection to the engine: reads requests, finds who answers, writes answers whole or as events."""

from __future__ import annotations

import hmac
import json
import select
import sys
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from socket import MSG_PEEK
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from engine.serving.errors import ApiError, Disconnected
from engine.serving.routes import Route, routes
from engine.visitors import refused
from probes import border
from probes.openmetrics import CONTENT_TYPE

if TYPE_CHECKING:
    from engine.server import Server

MAX_CONTROL, MAX_BODY = 64 << 10, 8 << 20
IDLE_TIMEOUT_S = 300
"""Seconds a kept connection may be silent."""


class Handler(BaseHTTPRequestHandler):
    """Bound to its server by a subclass that sets ``doors``."""

    doors: Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = IDLE_TIMEOUT_S
    body: dict[str, Any]

    def do_GET(self) -> None:
        if (path := self._admitted()) is None:
            return
        if path == "/metrics":
            self._send(200, CONTENT_TYPE, self.doors.page().encode())
        else:
            self._route("GET", path)

    def do_POST(self) -> None:
        if (path := self._admitted()) is None:
            return
        kind = self.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            # What a page may send without being asked first (text, forms) is never taken for JSON.
            self._refuse(415, "expected Content-Type: application/json", "unsupported_media_type")
        elif path == "/control":
            self._control()
        elif (body := self._read(MAX_BODY)) is None:
            error = ApiError(400, f"expected a JSON object of at most {MAX_BODY >> 20} MiB", code="invalid_body")
            self.send_json(error.status, error.body())
        else:
            self.body = body
            self._route("POST", path)

    def _admitted(self) -> str | None:
        """The path that is asked for; None where the request was refused for where it comes from."""
        why = refused(self.headers.get("Host"), self.headers.get("Origin"), self.doors.names, self.request_version)
        if why:
            self._refuse(403, f"refused: {why}", "forbidden_origin")
            return None
        try:
            return urlsplit(self.path).path
        except ValueError:
            self._refuse(400, "the path cannot be read", "invalid_path")
            return None

    def _refuse(self, status: int, message: str, code: str) -> None:
        # The body was not read, so the connection cannot be used again.
        self.close_connection = True
        self.send_json(status, ApiError(status, message, code=code).body())

    def gone(self) -> bool:
        """Whether the client closed its side; a client that already sent its next request is there."""
        poll = select.poll()
        poll.register(self.connection, select.POLLIN)
        try:
            return bool(poll.poll(0)) and self.connection.recv(1, MSG_PEEK) == b""
        except OSError:
            return True

    def send_json(self, status: int, body: dict[str, Any]) -> None:
        self._send(status, "application/json", json.dumps(body).encode())

    def begin_events(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Cache-Control", "no-cache")
        # Not by close_connection: a client that asks to close afterwards still reads HTTP/1.1 framing.
        self._chunked = self.request_version != "HTTP/1.0"
        if self._chunked:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.close_connection = True
        self.end_headers()

    def send_event(self, data: str) -> None:
        self._chunk(f"data: {data}\n\n".encode())

    def end_events(self) -> None:
        self._chunk(b"")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    def _route(self, method: str, path: str) -> None:
        try:
            self._answer(method, path)
        except ApiError as error:
            self.send_json(error.status, error.body())
        except (Disconnected, OSError):
            self.close_connection = True
        except Exception as error:
            # One request's trouble stays its own. The kind of error and nothing else: its text could quote a prompt.
            sys.stderr.write(f"request failed: {type(error).__name__}\n")
            self.close_connection = True
            with suppress(OSError):
                failed = ApiError(500, f"the engine could not serve this request ({type(error).__name__})")
                self.send_json(500, failed.body())

    def _answer(self, method: str, path: str) -> None:
        route = _ROUTES.get((method, path))
        if route is None:
            known = ", ".join(["GET /metrics", *(f"{found.METHOD} {found.PATH}" for found in _ROUTES.values())])
            raise ApiError(404, f"{method} {path}: nothing here; there are {known}", code="unknown_url")
        if self.doors.service is None:
            raise ApiError(503, "the engine is starting", code="starting")
        route.handle(self, self.doors.service)

    def _control(self) -> None:
        if not self._authorised():
            # The body was not read, so the connection cannot be used again.
            self.close_connection = True
            self.send_json(401, {"error": "the control endpoint needs the token from the engine's token file"})
        elif (body := self._read(MAX_CONTROL)) is None:
            self.send_json(400, {"error": f"expected a JSON object of at most {MAX_CONTROL} bytes"})
        else:
            self.send_json(*self.doors.control(body))

    def _authorised(self) -> bool:
        given = self.headers.get("Authorization", "")
        return hmac.compare_digest(given.encode("utf-8", "replace"), f"Bearer {self.doors.token}".encode())

    def _read(self, most: int) -> dict[str, Any] | None:
        """The JSON object in the body; None when there is none that can be read."""
        try:
            length = int(self.headers.get("Content-Length", "0"))
        except ValueError:
            length = 0
        if not 0 < length <= most:
            self.close_connection = True
            return None
        try:
            found = border.document(self.rfile.read(length), "the body")
        except border.Refused:
            return None
        return found if isinstance(found, dict) else None

    def _send(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Stay silent: the engine's output belongs to its launcher, and requests are nobody's business."""


_ROUTES: dict[tuple[str, str], Route] = routes()
