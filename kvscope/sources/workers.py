"""Threads for asking many at once. Nobody waits for one that hangs: not a round, not a close, not the program's end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")

Task = Callable[[], None]


class Workers:
    """Runs tasks in up to ``most`` threads, made as they are needed."""

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = self._idle = 0
        self._closed = False

    def start(self, task: Task) -> None:
        """Have a task run as soon as a thread is free. A task raises nothing."""
        with self._lock:
            if self._closed:
                return
            if self._idle > 0:
                self._idle -= 1
            elif self._threads < self._most:
                self._threads += 1
                # A daemon: the interpreter waits for no answer that may never come.
                threading.Thread(target=self._work, name=f"{self._name}-{self._threads}", daemon=True).start()
            self._tasks.put(task)

    def close(self) -> None:
        """Take no more tasks; threads end when their present one does."""
        with self._lock:
            self._closed = True
            for _ in range(self._threads):
                self._tasks.put(None)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None and not self._closed:
            task()
            with self._lock:
                if self._tasks.empty():
                    self._idle += 1


class Results(Generic[T]):
    """What tasks found so far, and a way to wait for some of it, but not for long."""

    def __init__(self) -> None:
        self._found: list[T] = []
        self._changed = threading.Condition()

    def put(self, found: T) -> None:
        """Called by a task when it is done."""
        with self._changed:
            self._found.append(found)
            self._changed.notify_all()

    def take(self, enough: int, seconds: float) -> list[T]:
        """Return what there is as soon as it is ``enough``, or after so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._found) >= enough, seconds)
            found, self._found = self._found, []
            return found
