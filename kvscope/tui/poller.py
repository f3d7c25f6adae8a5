"""The one thread that touches the session: it polls, does what keys asked for, and posts a message for each."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Protocol

from textual.message import Message

from kvscope.errors import KvscopeError
from kvscope.order import Order
from kvscope.view import View

SECOND_LOOK_S = 0.5
"""The first view is made without asking the playbooks: the one that has asked them follows it soon."""


class ViewReady(Message):
    """A new frozen view, ready to be shown."""

    def __init__(self, view: View) -> None:
        super().__init__()
        self.view = view


class Answered(Message):
    """What came of an order, in words for a person."""

    def __init__(self, text: str, failed: bool = False) -> None:
        super().__init__()
        self.text, self.failed = text, failed


class Broken(Message):
    """The session raised something nobody expected; the thread has stopped."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


class Watched(Protocol):
    """What the dashboard asks of a session; ``kvscope.session.Session`` is one."""

    def poll(self) -> View: ...

    def do(self, asked: Order) -> str: ...

    def close(self) -> None: ...


class Poller(threading.Thread):
    """Polls every ``interval_s`` and at once after an order; ``stop`` ends it."""

    def __init__(self, session: Watched, post: Callable[[Message], object], interval_s: float) -> None:
        super().__init__(name="kvscope-poller", daemon=True)
        self._session, self._post, self._interval_s = session, post, interval_s
        self._orders: queue.SimpleQueue[Order | threading.Event | None] = queue.SimpleQueue()

    def ask(self, order: Order) -> None:
        """Have it done on the polling thread; the session's words come back as Answered."""
        self._orders.put(order)

    def drain(self) -> None:
        """Wait until everything asked so far is done and the view after it is posted (for tests)."""
        first, second = threading.Event(), threading.Event()
        for event in (first, second):
            self._orders.put(event)
        second.wait(10)

    def stop(self) -> None:
        """End the thread after what it is doing now."""
        self._orders.put(None)

    def run(self) -> None:
        """Poll until stopped."""
        try:
            self._loop()
        except Exception as error:
            self._post(Broken(error))

    def _loop(self) -> None:
        due, wait_s = time.monotonic(), min(SECOND_LOOK_S, self._interval_s)
        while True:
            self._post(ViewReady(self._session.poll()))
            due = max(due + wait_s, time.monotonic() + wait_s / 4)
            wait_s = self._interval_s
            try:
                order = self._orders.get(timeout=max(due - time.monotonic(), 0.0))
            except queue.Empty:
                continue
            if order is None:
                return
            self._obey(order)

    def _obey(self, order: Order | threading.Event) -> None:
        if isinstance(order, threading.Event):
            order.set()
            return
        try:
            self._post(Answered(self._session.do(order)))
        except KvscopeError as error:
            self._post(Answered(str(error), failed=True))
