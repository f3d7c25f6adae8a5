"""A server with all its connections taken turns the next away, and serves again when one is free."""

from __future__ import annotations

import socket
import threading
import urllib.request
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler

from probes.bounded_http import BoundedHTTPServer


class Page(BaseHTTPRequestHandler):
    timeout = 5.0

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


class Small(BoundedHTTPServer):
    most_connections = 3


def test_a_connection_too_many_is_told_so_and_one_that_ends_makes_room() -> None:
    with Small(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        with ExitStack() as held:
            for _ in range(Small.most_connections):
                held.enter_context(socket.create_connection(server.server_address, timeout=5))
            with socket.create_connection(server.server_address, timeout=5) as late:
                assert late.recv(64).startswith(b"HTTP/1.1 503")
        url = f"http://127.0.0.1:{server.server_port}/"
        answers = []
        while b"ok" not in answers:
            try:
                answers.append(urllib.request.urlopen(url, timeout=5).read())
            except OSError as refused:
                # Those that hung up are still being noticed.
                answers.append(str(refused).encode())
                assert len(answers) < 1000
        server.shutdown()
