"""Headers and tokens reach the page that is read, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from kvscope.errors import UsageError
from kvscope.sources import access
from kvscope.sources.fetch import FetchError, fetch
from kvscope.sources.scrape import ScrapeSource

PAGE = b"vllm:num_requests_running 1\nvllm:generation_tokens_total 5\n"


class Page(BaseHTTPRequestHandler):
    """Wants a token."""

    def do_GET(self) -> None:
        good = self.headers.get("Authorization") == "Bearer s3cret" and self.headers.get("X-Team") == "kv"
        self.send_response(200 if good else 401)
        self.send_header("Content-Length", str(len(PAGE)))
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def address() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
    access.use()


def test_a_token_of_the_environment_and_a_header_are_sent(address: str) -> None:
    with pytest.raises(FetchError, match="401"):
        fetch(f"{address}/metrics", 5)
    access.use(["X-Team: kv"], "TOKEN", env={"TOKEN": "s3cret"})
    assert fetch(f"{address}/metrics", 5).encode() == PAGE
    assert "s3cret" not in repr(access.current())


def test_a_token_in_an_address_is_sent_and_shown_nowhere(address: str) -> None:
    access.use(["X-Team: kv", "Authorization: Bearer s3cret"])
    about = ScrapeSource(f"{address}/metrics?token=t0ken").describe()
    assert "t0ken" not in repr(about)
    with pytest.raises(FetchError) as refused:
        fetch("http://127.0.0.1:1/metrics?token=t0ken", 1)
    assert "t0ken" not in str(refused.value)


@pytest.mark.parametrize("header", ["no colon", ": value", "A B: c", "X: a\nInjected: yes", "X: \u202e"])
def test_what_is_no_header_is_refused_without_being_repeated(header: str) -> None:
    with pytest.raises(UsageError) as refused:
        access.use([header])
    assert header not in str(refused.value)


def test_a_variable_or_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match="NOPE"):
        access.use((), "NOPE", env={})
    with pytest.raises(UsageError, match="/nowhere"):
        access.use((), ca="/nowhere")
