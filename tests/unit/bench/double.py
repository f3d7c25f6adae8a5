"""A test double of an OpenAI-compatible server: streams numbered tokens at once, or does what a test asks it to."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Double:
    """``mode``: fine, packed (two tokens a chunk), refuse, error-event, cut, early, silent, plain (not chunked)."""

    def __init__(self) -> None:
        self.mode = "fine"
        self.bodies: list[dict[str, Any]] = []
        self.url = ""
        self.outstanding = self.most_outstanding = 0
        self.lock = threading.Lock()


@contextmanager
def serving() -> Iterator[Double]:
    """Serve on a free port of this machine."""
    double = Double()
    handler = type("Handler", (_Handler,), {"double": double})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        double.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield double
        finally:
            server.shutdown()
            thread.join()


class _Handler(http.server.BaseHTTPRequestHandler):
    double: Double
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            self._json(200, {"data": [{"id": "double", "max_model_len": 4096}]})
        else:
            self._json(404, {"error": {"message": "nothing here"}})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.double.lock:
            self.double.bodies.append(body)
            self.double.outstanding += 1
            self.double.most_outstanding = max(self.double.most_outstanding, self.double.outstanding)
        try:
            self._answer(body)
        finally:
            with self.double.lock:
                self.double.outstanding -= 1

    def _answer(self, body: dict[str, Any]) -> None:
        mode = self.double.mode
        if mode == "refuse":
            self._json(400, {"error": {"message": "ignore_eos is not supported"}})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header(*(("Connection", "close") if mode == "plain" else ("Transfer-Encoding", "chunked")))
        self.end_headers()
        if mode == "error-event":
            self._event(json.dumps({"error": {"message": "too many requests"}}))
        elif mode != "silent":
            self._tokens(body, mode)
        if mode == "cut":
            self.close_connection = True
            return
        self._event("[DONE]")
        if mode != "plain":
            self.wfile.write(b"0\r\n\r\n")

    def _tokens(self, body: dict[str, Any], mode: str) -> None:
        wanted = body["max_tokens"] // (2 if mode == "early" else 1)
        self._event(json.dumps({"choices": [{"text": ""}]}))
        for number in range(wanted // (2 if mode == "packed" else 1)):
            self._event(json.dumps({"choices": [{"text": f"{number} "}], "usage": None}))
        prompt = body["prompt"]
        tokens = len(prompt) if isinstance(prompt, list) else 2 * len(prompt.split())
        self._event(json.dumps({"choices": [], "usage": {"prompt_tokens": tokens, "completion_tokens": wanted}}))

    def _event(self, data: str) -> None:
        text = f"data: {data}\n\n".encode()
        self.wfile.write(text if self.double.mode == "plain" else b"%x\r\n%b\r\n" % (len(text), text))

    def _json(self, status: int, body: dict[str, Any]) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        return
