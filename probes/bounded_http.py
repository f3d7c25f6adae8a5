"""An HTTP server of threads that takes so many connections and no more: standard library, for engine and exporter."""

from __future__ import annotations

import contextlib
import threading
from http.server import ThreadingHTTPServer
from typing import Any

_FULL = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class BoundedHTTPServer(ThreadingHTTPServer):
    """One thread a connection, ``most_connections`` at once: who comes then is told 503 and costs no thread."""

    daemon_threads = True
    most_connections = 64

    def __init__(self, *words: Any) -> None:
        super().__init__(*words)
        self._free = threading.BoundedSemaphore(self.most_connections)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give a connection its thread, or turn it away."""
        if not self._free.acquire(blocking=False):
            with contextlib.suppress(OSError):
                request.setblocking(False)
                request.send(_FULL)
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()
