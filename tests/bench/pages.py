"""A saved series of an engine's pages, served as if the engine ran: one page a second, over and over."""

from __future__ import annotations

import gzip
import json
import threading
import time
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Pages(AbstractContextManager["Pages"]):
    """Serves ``path`` (.jsonl.gz, {t, text} a line) at ``url`` while the context lasts."""

    def __init__(self, path: Path) -> None:
        with gzip.open(path, "rt") as file:
            texts = [json.loads(line)["text"].encode() for line in file]
        began = time.monotonic()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = self.path.startswith("/metrics")
                body = texts[int(time.monotonic() - began) % len(texts)] if found else b"{}"
                self.send_response(200 if found else 404)
                self.send_header("Content-Type", "text/plain; version=0.0.4" if found else "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nobody reads it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
