"""The engine's doors: `/metrics` and the OpenAI routes for anyone on this machine, `/control` for whoever can read the
token file.

Standard library HTTP on loopback, one thread a connection. A handler never touches the engine: it posts a message and
waits for what the engine's own loop answers between two steps.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from queue import Queue
from typing import Any

from engine.handler import Handler
from engine.serving.service import Service
from engine.serving.ticket import Ticket
from engine.visitors import own_names
from probes.bounded_http import BoundedHTTPServer
from probes.runtime import process_start_ticks

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


class _HTTP(BoundedHTTPServer):
    most_connections = 1024
    # A load client opens all its connections at once; the default of five makes the others wait for a retry.
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Name the kind of error and nothing else: its text could quote a prompt."""
        kind = sys.exc_info()[0]
        if kind is not None and not issubclass(kind, OSError):
            sys.stderr.write(f"request failed: {kind.__name__}\n")


class Server:
    """Serves from `start` to `close`; ``port`` is the one it got (0 asks for a free one). OSError when it is taken."""

    def __init__(self, page: Callable[[], str], host: str = "127.0.0.1", port: int = 0) -> None:
        self.messages: Queue[Command | Ticket] = Queue()
        self.token = secrets.token_urlsafe(32)
        self.names = own_names(host)
        self.page = page
        self.service: Service | None = None
        handler = type("BoundHandler", (Handler,), {"doors": self})
        self._http = _HTTP((host, port), handler)
        self.port = int(self._http.server_address[1])
        self._thread = threading.Thread(target=self._http.serve_forever, name="http", daemon=True)
        self._token_path: Path | None = None

    def start(self, service: Service) -> None:
        """Serve; what connected before waited."""
        self.service = service
        self._thread.start()

    def control(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Have the engine's loop carry out a control request; status and reply."""
        command = Command(body)
        self.messages.put(command)
        return command.wait()

    def write_token(self, path: Path) -> None:
        """Leave address and token in a file only this user can read; tokens of engines that are dead go."""
        for left in path.parent.glob("engine-*-*.token"):
            pid, _, ticks = left.stem.removeprefix("engine-").partition("-")
            if pid.isdecimal() and str(process_start_ticks(int(pid))) != ticks:
                left.unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            json.dump({"port": self.port, "token": self.token}, file)
        self._token_path = path

    def close(self) -> None:
        if self._token_path is not None:
            self._token_path.unlink(missing_ok=True)
        if self.service is not None:
            self.service.stopping.set()
        if self._thread.is_alive():
            self._http.shutdown()
            self._thread.join()
        self._http.server_close()
