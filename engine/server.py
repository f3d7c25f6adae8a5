"""The engine's two doors: `/metrics` for anyone on this machine, `/control` for whoever can read the token file.

Standard library HTTP on loopback. A handler never touches the engine: it posts a command and waits for the reply that
the engine's own loop gives between two steps.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from typing import Any

from engine.exposition import CONTENT_TYPE

MAX_BODY = 64 << 10
REPLY_TIMEOUT_S = 120.0


class Command:
    """One control request on its way to the engine's loop: a JSON object in, a JSON object out."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.body = body
        self.status, self.reply = 503, {"error": "the engine did not answer in time"}
        self._done = threading.Event()

    def answer(self, status: int, reply: dict[str, Any]) -> None:
        """Called by the engine's loop, once."""
        self.status, self.reply = status, reply
        self._done.set()

    def wait(self) -> tuple[int, dict[str, Any]]:
        self._done.wait(REPLY_TIMEOUT_S)
        return self.status, self.reply


class Server:
    """Serves until `close`; ``port`` is the one it got (0 asks for a free one). OSError when the port is taken."""

    def __init__(self, page: Callable[[], str], host: str = "127.0.0.1", port: int = 0) -> None:
        self.commands: Queue[Command] = Queue()
        self.token = secrets.token_urlsafe(32)
        handler = type("Handler", (_Handler,), {"page": staticmethod(page), "server_side": self})
        self._http = ThreadingHTTPServer((host, port), handler)
        self._http.daemon_threads = True
        self.port = int(self._http.server_address[1])
        self._thread = threading.Thread(target=self._http.serve_forever, name="http", daemon=True)
        self._thread.start()
        self._token_path: Path | None = None

    def write_token(self, path: Path) -> None:
        """Leave address and token in a file only this user can read."""
        path.unlink(missing_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            json.dump({"port": self.port, "token": self.token}, file)
        self._token_path = path

    def close(self) -> None:
        if self._token_path is not None:
            self._token_path.unlink(missing_ok=True)
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    page: Callable[[], str]
    server_side: Server

    def do_GET(self) -> None:
        if self.path.partition("?")[0] == "/metrics":
            self._send(200, CONTENT_TYPE, self.page().encode())
        else:
            self._send_json(404, {"error": f"{self.path}: nothing here; try /metrics"})

    def do_POST(self) -> None:
        if self.path != "/control":
            self._send_json(404, {"error": f"{self.path}: nothing here; try /control"})
        elif not self._authorised():
            self._send_json(401, {"error": "the control endpoint needs the token from the engine's token file"})
        elif (body := self._body()) is None:
            self._send_json(400, {"error": f"expected a JSON object of at most {MAX_BODY} bytes"})
        else:
            command = Command(body)
            self.server_side.commands.put(command)
            self._send_json(*command.wait())

    def _authorised(self) -> bool:
        given = self.headers.get("Authorization", "")
        return hmac.compare_digest(given.encode(), f"Bearer {self.server_side.token}".encode())

    def _body(self) -> dict[str, Any] | None:
        try:
            length = int(self.headers.get("Content-Length", "0"))
            body = json.loads(self.rfile.read(length)) if 0 < length <= MAX_BODY else None
        except ValueError:
            return None
        return body if isinstance(body, dict) else None

    def _send_json(self, status: int, body: dict[str, Any]) -> None:
        self._send(status, "application/json", json.dumps(body).encode())

    def _send(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Stay silent: the engine's output belongs to its launcher."""
