"""A page comes whole and in time, from where it was asked for, or the error says why not."""

from __future__ import annotations

import gzip
import io
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from kvscope.sources.fetch import PAGE_LIMIT, FetchError, _Gzip, _SameHostOnly, fetch, is_loopback
from kvscope.sources.scrape import ScrapeSource

MIB = b"x 1\n" * (1 << 18)


class Handler(BaseHTTPRequestHandler):
    """Answers by path, as badly as the path says."""

    def do_GET(self) -> None:
        answer = getattr(self, f"answer_{self.path.strip('/').replace('-', '_')}", None)
        if answer is None:
            self.reply(404, b"nothing here")
        else:
            answer()

    def reply(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def answer_metrics(self) -> None:
        self.reply(200, b'vllm:num_requests_running{model_name="m"} 1\n')

    def answer_version(self) -> None:
        self.reply(200, b'{"version": "0.32.0"}')

    def answer_zipped(self) -> None:
        self.reply(200, gzip.compress(b"a 1\n"), Content_Encoding="gzip")

    def answer_zip_cut(self) -> None:
        self.reply(200, gzip.compress(b"a 1\n" * 1000)[:-20], Content_Encoding="gzip")

    def answer_bomb(self) -> None:
        self.reply(200, gzip.compress(MIB * 100, 1), Content_Encoding="gzip")

    def answer_moved(self) -> None:
        self.reply(302, b"", Location="/metrics")

    def answer_elsewhere(self) -> None:
        self.reply(302, b"", Location="http://example.invalid/metrics")

    def answer_cut(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"a 1\n")

    def answer_huge(self) -> None:
        self.send_response(200)
        self.end_headers()
        try:
            for _ in range(100):
                self.wfile.write(MIB)
        except OSError:
            pass

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever)
        thread.start()
        yield f"127.0.0.1:{httpd.server_address[1]}"
        httpd.shutdown()
        thread.join()


@contextmanager
def silent_listener() -> Iterator[str]:
    """A port that accepts and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_a_page_comes_plain_or_zipped_or_from_another_path_of_the_same_host(server: str) -> None:
    assert "vllm:num_requests_running" in fetch(f"http://{server}/metrics", 5)
    assert fetch(f"http://{server}/zipped", 5) == "a 1\n"
    assert "vllm:num_requests_running" in fetch(f"http://{server}/moved", 5)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("missing", "HTTP 404"),
        ("elsewhere", "redirects to another place"),
        ("cut", "closed in the middle"),
        ("zip-cut", "middle of its gzip stream"),
        ("huge", "larger than 64 MiB"),
        ("bomb", "larger than 64 MiB"),
    ],
)
def test_what_is_wrong_with_an_answer_is_said(server: str, path: str, said: str) -> None:
    with pytest.raises(FetchError, match=said):
        fetch(f"http://{server}/{path}", 30)


def test_a_refused_connection_says_that_nothing_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(FetchError, match="nothing listens there"):
        fetch(f"http://127.0.0.1:{port}/metrics", 5)


def test_a_server_that_never_answers_costs_no_more_than_the_timeout() -> None:
    with silent_listener() as address, pytest.raises(FetchError, match=r"no answer within 0\.05 s"):
        fetch(f"http://{address}/metrics", 0.05)


def test_a_page_that_drips_is_given_up_at_the_deadline(server: str) -> None:
    ticks = iter([0.0, 99.0])
    with pytest.raises(FetchError, match="not whole after 5 s"):
        fetch(f"http://{server}/metrics", 5, clock=lambda: next(ticks))


def test_an_unknown_host_is_an_error_of_one_line() -> None:
    with pytest.raises(FetchError) as caught:
        fetch("http://host.invalid/metrics", 5)
    assert "\n" not in str(caught.value)


def test_something_that_is_no_http_server_is_said_to_be_that() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(FetchError, match="does not speak HTTP"):
            fetch(f"http://127.0.0.1:{listener.getsockname()[1]}/metrics", 5)
        thread.join()


def test_the_limit_is_far_above_any_real_page() -> None:
    assert PAGE_LIMIT == 64 << 20


def test_this_machine_is_known_by_all_its_names() -> None:
    assert all(map(is_loopback, ["localhost", "127.0.0.1", "127.1.2.3", "::1"]))
    assert not any(map(is_loopback, ["10.0.0.1", "example.org", "localhost.example.org"]))


def test_a_whole_scrape_over_http_knows_the_version(server: str) -> None:
    source = ScrapeSource(server)
    description = source.describe()
    assert (description.kind, description.version, description.tags["model"]) == ("vllm", "0.32.0", "m")
    assert {sample.metric for sample in source.poll().samples} >= {"sched.running", "engine.info"}


PAGE = b"vllm:num_requests_running 1\n"
OPENINGS = {
    "status": b"",
    "header": b"HTTP/1.1 200 OK\r\nX-A: ",
    "chunk size": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;",
    "trailer": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1c\r\n" + PAGE + b"\r\n0\r\nX-T: ",
    "continue": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 ",
    "body": b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n",
}


@pytest.mark.parametrize("part", OPENINGS)
def test_an_answer_that_trickles_in_any_of_its_parts_ends_with_the_exchange(part: str) -> None:
    with trickling(OPENINGS[part]) as address:
        began = time.monotonic()
        with pytest.raises(FetchError, match=r"within 0\.5 s|after 0\.5 s|closed|HTTP"):
            fetch(f"http://{address}/metrics", 0.5)
        assert time.monotonic() - began < 3.0


@contextmanager
def trickling(opening: bytes) -> Iterator[str]:
    """A server that sends ``opening`` and then a letter now and then, until nobody listens."""
    ended = threading.Event()

    def serve() -> None:
        with suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(opening)
                while not ended.wait(0.05):
                    connection.sendall(b"a")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            ended.set()
            thread.join()


@pytest.mark.parametrize("members", [1, 2, 3])
def test_a_page_packed_in_several_members_is_read_whole(members: int) -> None:
    unpacker = _Gzip()
    text = b"".join(b"a%d 1\n" % number for number in range(3000))
    cut = -(-len(text) // members)
    packed = b"".join(gzip.compress(text[at : at + cut]) for at in range(0, len(text), cut)) + b"\0" * 8
    pieces = [unpacker.add(packed[at : at + 100], 1 << 20) for at in range(0, len(packed), 100)]
    assert b"".join(pieces) == text
    assert unpacker.whole


def test_a_token_is_not_carried_from_https_to_http() -> None:
    handler = _SameHostOnly()
    request = urllib.request.Request("https://host:8000/metrics")
    with pytest.raises(FetchError, match="from https to http"):
        handler.redirect_request(request, io.BytesIO(), 302, "Found", HTTPMessage(), "http://host:8000/metrics")
