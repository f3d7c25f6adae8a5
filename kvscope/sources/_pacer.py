"""Plays stamped items back: all at once, or as fast as they happened times ``speed``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Pacer(Generic[T]):
    """Hands out items of an iterator of (seconds, item) when they are due. ``speed`` None: everything is due."""

    def __init__(
        self, items: Iterator[tuple[float, T]], speed: float | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._items = items
        self._speed = speed
        self._clock = clock
        self._started = 0.0
        self._first: float | None = None
        self._next = next(items, None)

    @property
    def ended(self) -> bool:
        return self._next is None

    def due(self) -> Iterator[T]:
        """Yield what is due now, oldest first."""
        now = self._clock()
        while self._next is not None:
            t, item = self._next
            if self._first is None:
                self._first, self._started = t, now
            if self._speed is not None and (t - self._first) > (now - self._started) * self._speed:
                return
            self._next = next(self._items, None)
            yield item
