"""A served tiny engine: real HTTP, a real loop in a thread, and an engine whose steps take a millisecond."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from queue import Empty
from typing import Any

from engine.llm import Engine
from engine.server import Command, Server
from engine.serving.desk import Desk
from engine.serving.service import Service
from engine.tokenizer import NumberTokenizer
from tests.unit.engine.tiny import CONFIG

MODEL, LONGEST, PATIENCE_S = "tiny", 256, 30.0


class Live:
    """``ask`` and ``connect`` are a client's; ``engine`` may be looked at once ``quiet`` said that nothing runs."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.server = Server(lambda: "# EOF\n")
        self.desk = Desk(engine, NumberTokenizer(CONFIG.vocab_size))
        self.paused = threading.Event()
        self.resting = threading.Event()
        self._stop = threading.Event()
        self._loop = threading.Thread(target=self._run)
        self._loop.start()
        self.service = Service(MODEL, self.desk.tokenizer, CONFIG.vocab_size, LONGEST, 1, self.server.messages.put)
        self.server.start(self.service)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                message = self.server.messages.get(timeout=0.002)
            except Empty:
                self.resting.set()
            else:
                self.resting.clear()
                assert not isinstance(message, Command)
                self.desk.receive(message)
            while self.engine.has_work and not self.paused.is_set() and self.server.messages.empty():
                self.engine.step()

    def connect(self) -> HTTPConnection:
        return HTTPConnection("127.0.0.1", self.server.port, timeout=PATIENCE_S)

    def ask(self, path: str, body: Any = None, method: str = "") -> tuple[int, Any]:
        """Status and the decoded answer of one request."""
        with closing(self.connect()) as connection:
            send(connection, path, body, method)
            response = connection.getresponse()
            return response.status, json.loads(response.read())

    def quiet(self) -> None:
        """Wait until nothing runs and no message is open."""
        self.resting.clear()
        assert self.resting.wait(PATIENCE_S)
        assert not self.engine.has_work

    def close(self) -> None:
        self._stop.set()
        self._loop.join()
        self.desk.close()
        self.server.close()


@contextmanager
def closing(connection: HTTPConnection) -> Iterator[HTTPConnection]:
    try:
        yield connection
    finally:
        connection.close()


def send(connection: HTTPConnection, path: str, body: Any = None, method: str = "") -> None:
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {} if data is None else {"Content-Type": "application/json"}
    connection.request(method or ("GET" if data is None else "POST"), path, data, headers)


def events(response: HTTPResponse) -> list[Any]:
    """The data of server-sent events, the closing word left out."""
    lines = [line.removeprefix(b"data: ") for line in response.read().split(b"\n\n") if line]
    assert lines.pop() == b"[DONE]"
    return [json.loads(line) for line in lines]
