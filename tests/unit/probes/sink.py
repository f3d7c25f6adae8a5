"""A sink that keeps rows in lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class ListSink:
    def __init__(self) -> None:
        self.steps: list[list[float]] = []
        self.requests: list[list[float]] = []
        self.events: list[Mapping[str, Any]] = []

    def write_step(self, values: Sequence[float]) -> None:
        self.steps.append(list(values))

    def write_request(self, values: Sequence[float]) -> None:
        self.requests.append(list(values))

    def write_event(self, event: Mapping[str, Any]) -> None:
        self.events.append(event)
