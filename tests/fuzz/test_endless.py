"""A page without an end is cut off with one clear error, plain or packed, and never held whole."""

from __future__ import annotations

import resource
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from kvscope.errors import SourceError
from kvscope.sources import open_target
from kvscope.sources.fetch import PAGE_LIMIT

GIGABYTE = 1 << 30
BLOCK = b"vllm:num_requests_running 1\n" * 4096


class Endless(BaseHTTPRequestHandler):
    """A gigabyte of one sample; ``/packed`` sends it as gzip, a thousandth as long on the wire."""

    def do_GET(self) -> None:
        packed = self.path.startswith("/packed")
        packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
        with suppress(OSError):
            self.send_response(200)
            if packed:
                self.send_header("Content-Encoding", "gzip")
            self.end_headers()
            for _ in range(GIGABYTE // len(BLOCK)):
                self.wfile.write(packer.compress(BLOCK) if packed else BLOCK)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def server() -> Iterator[str]:
    http = ThreadingHTTPServer(("127.0.0.1", 0), Endless)
    thread = threading.Thread(target=http.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_port}"
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


@pytest.mark.parametrize("path", ["/plain", "/packed"])
def test_a_gigabyte_is_cut_off_and_little_of_it_is_held(path: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with server() as address, pytest.raises(SourceError, match="larger than 64 MiB"):
        open_target(address + path, timeout_s=60.0)
    held = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    assert held < 3 * PAGE_LIMIT
