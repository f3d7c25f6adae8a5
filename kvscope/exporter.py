"""Serves a target's canonical metrics on loopback, for a Prometheus that already watches this machine."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

from kvscope.errors import UsageError
from kvscope.exposition import Exposition
from kvscope.sources.source import Source
from probes.bounded_http import BoundedHTTPServer
from probes.openmetrics import CONTENT_TYPE

HOST = "127.0.0.1"


class Exporter:
    """Polls a source with `poll` and serves what it said last; `close` ends the server.

    While the target does not answer the page is refused (503), so that Prometheus marks it down instead of
    showing values that nobody measured. UsageError when the port is taken.
    """

    def __init__(self, source: Source, port: int = 0) -> None:
        self._source = source
        self._exposition = Exposition()
        self._lock = threading.Lock()
        self._page, self._why = "", "nothing polled yet"
        handler = type("Handler", (_Handler,), {"page": staticmethod(self.page)})
        try:
            self._http = BoundedHTTPServer((HOST, port), handler)
        except (OSError, OverflowError) as error:
            raise UsageError(f"--port {port}: {error}; expected a free port, 0 picks one") from error
        self.port = int(self._http.server_address[1])
        self._thread = threading.Thread(target=self._http.serve_forever, name="export", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}/metrics"

    def poll(self) -> tuple[tuple[str, ...], bool]:
        """Read what is new; returns the notices and whether the target has ended for good."""
        poll = self._source.poll()
        self._exposition.add(poll.samples)
        about = self._source.describe()
        info = {**about.tags, "engine": about.engine, "version": about.version}
        page = self._exposition.render(info)
        with self._lock:
            self._page, self._why = page, "" if about.alive else f"{about.target} does not answer"
        return poll.notices, poll.ended

    def page(self) -> tuple[int, str]:
        """Return status and text for a scrape."""
        with self._lock:
            return (503, self._why + "\n") if self._why else (200, self._page)

    def close(self) -> None:
        """Stop serving."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    timeout = 10.0
    """Seconds that a connection may say nothing."""
    page: Callable[[], tuple[int, str]]

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/metrics":
            self._send(404, "text/plain; charset=utf-8", f"{self.path}: nothing here; try /metrics\n")
            return
        status, text = self.page()
        self._send(status, CONTENT_TYPE if status == 200 else "text/plain; charset=utf-8", text)

    def _send(self, status: int, content_type: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Stay silent: stderr says what the target says, not who scraped."""
