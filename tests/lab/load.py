"""Clients of a laboratory run: closed loops and open arrivals, timed token by token as a client sees them."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from dataclasses import asdict, dataclass
from typing import Any

from tests.lab.engines import Server, tokens_of
from tests.lab.scenario import Load

TIMEOUT_S = 60.0


@dataclass
class Row:
    """One request as its client saw it; times in seconds since the run began."""

    t: float
    kind: str
    prompt: int
    status: int = 0
    ttft: float | None = None
    e2e: float | None = None
    tokens: int = 0
    longest_gap: float | None = None
    error: str = ""


class Clients:
    """Sends a load at a server until stopped; equal seeds send equal prompts in equal order."""

    def __init__(self, server: Server, load: Load, seed: int) -> None:
        self._server, self._load = server, load
        self._stop, self._lock = threading.Event(), threading.Lock()
        self._begun = time.monotonic()
        rng = random.Random(seed)
        count = max(1, load.conversations) if load.shared else 0
        self._heads = [tokens_of(rng, load.shared) for _ in range(count)]
        self._turn, self._seed = 0, seed
        self.rows: list[Row] = []
        self.received: dict[int, int] = {}
        """Tokens that arrived in each second of the run, those of requests still in flight included."""

    def run(self, seconds: float) -> list[Row]:
        """Run for ``seconds``; requests in flight at the end are cut off and not counted."""
        threads = [threading.Thread(target=self._loop, args=(k, False), daemon=True) for k in range(self._load.clients)]
        threads += [
            threading.Thread(target=self._loop, args=(k, True), daemon=True) for k in range(self._load.long_clients)
        ]
        if self._load.rate_per_s:
            threads.append(threading.Thread(target=self._arrivals, daemon=True))
        for thread in threads:
            thread.start()
        time.sleep(seconds)
        self._stop.set()
        with self._lock:
            return list(self.rows)

    def _loop(self, number: int, long: bool) -> None:
        rng = random.Random(f"{self._seed}:{number}:{long}")
        while not self._stop.is_set():
            row = self._ask(rng, long)
            if row.error and not self._stop.is_set():
                time.sleep(0.2)
            self._stop.wait(self._load.think_s * rng.uniform(0.7, 1.3))

    def _arrivals(self) -> None:
        rng = random.Random(f"{self._seed}:open")
        while not self._stop.wait(rng.expovariate(self._load.rate_per_s)):
            mine = random.Random(rng.random())
            threading.Thread(target=self._ask, args=(mine, False), daemon=True).start()

    def _prompt(self, rng: random.Random, long: bool) -> list[int]:
        if long:
            return tokens_of(rng, self._load.long_prompt)
        head: list[int] = []
        if self._heads:
            with self._lock:
                self._turn += 1
                head = self._heads[self._turn % len(self._heads)]
        return head + tokens_of(rng, rng.randint(*self._load.prompt))

    def _ask(self, rng: random.Random, long: bool) -> Row:
        prompt, wanted = self._prompt(rng, long), 4 if long else rng.randint(*self._load.output)
        begun = time.monotonic()
        row = Row(round(begun - self._begun, 4), "long" if long else "short", len(prompt))
        try:
            self._stream(row, prompt, wanted, begun)
        except (OSError, http.client.HTTPException, ValueError) as error:
            row.error = type(error).__name__
        if not self._stop.is_set():
            with self._lock:
                self.rows.append(row)
        return row

    def _count(self, now: float) -> None:
        with self._lock:
            second = int(now - self._begun)
            self.received[second] = self.received.get(second, 0) + 1

    def _stream(self, row: Row, prompt: list[int], wanted: int, begun: float) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=TIMEOUT_S)
        try:
            body = json.dumps(self._server.engine.body(prompt, wanted, self._server.settings))
            connection.request("POST", self._server.engine.path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            row.status, last, gaps = answer.status, 0.0, [0.0]
            for line in answer:
                if b'"error"' in line:
                    row.error = "refused"
                if not line.startswith(b"data: {"):
                    continue
                now = time.monotonic()
                if row.ttft is None:
                    row.ttft = round(now - begun, 4)
                else:
                    gaps.append(now - last)
                last, row.tokens = now, row.tokens + 1
                self._count(now)
            row.longest_gap = round(max(gaps), 4)
            row.e2e = round((last or time.monotonic()) - begun, 4)
            if answer.status != 200:
                row.error = f"HTTP {answer.status}"
        finally:
            connection.close()


def as_rows(rows: list[Row]) -> list[dict[str, Any]]:
    """Return rows as they are kept."""
    return [asdict(row) for row in rows]
