"""Collects one step's numbers and commits them as a row.

A probe point in the engine is an attribute that is None when probes are off: ``if probe is not None: …``. There is no
null recorder and no context manager: both cost more than the thing they would guard.
"""

from __future__ import annotations

import struct
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from probes.catalog import CATALOG


class Sink(Protocol):
    """Where committed rows go: a ring writer, or a list in tests."""

    def write_step(self, values: Sequence[float]) -> None: ...

    def write_request(self, values: Sequence[float]) -> None: ...

    def write_event(self, event: Mapping[str, Any]) -> None: ...


def step_columns(metrics: Sequence[str], layer_metrics: Sequence[str], layers: int) -> list[str]:
    """Return the columns of a step row: ``t``, the metrics, then ``metric[layer]`` for every layer."""
    unknown = [name for name in (*metrics, *layer_metrics) if name not in CATALOG]
    assert not unknown, f"not in the catalogue: {unknown}"
    return ["t", *metrics, *(f"{name}[{layer}]" for name in layer_metrics for layer in range(layers))]


class Recorder:
    """The row being filled. Counters keep growing over the engine's life, gauges hold their last value.

    The row is one stretch of doubles, not objects: between two steps the engine sweeps the processor's caches, and
    each object that a row has to visit afterwards is fetched from memory again.
    """

    def __init__(self, sink: Sink, columns: Sequence[str], request_columns: Sequence[str]) -> None:
        self._sink = sink
        self.columns = tuple(columns)
        self._index = {name: i for i, name in enumerate(columns)}
        self._row = array("d", bytes(8 * len(columns)))
        self._request_columns = tuple(request_columns)

    def add(self, name: str, amount: float) -> None:
        """Let a counter grow by ``amount`` (the catalogue's unit)."""
        self._row[self._index[name]] += amount

    def set(self, name: str, value: float) -> None:
        """Set a gauge."""
        self._row[self._index[name]] = value

    def setter(self, *names: str) -> Callable[..., None]:
        """Return a function that sets these columns, which follow each other, one value each: what every step sets."""
        row, first = self._row, self._index[names[0]]
        assert self.columns[first : first + len(names)] == names, f"columns that do not follow each other: {names}"
        pack_into, at = struct.Struct(f"{len(names)}d").pack_into, first * row.itemsize

        def put(*values: float) -> None:
            pack_into(row, at, *values)

        return put

    def set_layers(self, name: str, values: Sequence[float]) -> None:
        """Set a per-layer gauge, one value per layer."""
        first = self._index[f"{name}[0]"]
        self._row[first : first + len(values)] = array("d", values)

    def read(self, name: str) -> float:
        """Return the column's present value."""
        return self._row[self._index[name]]

    def snapshot(self) -> dict[str, float]:
        """Return every column's present value by name, ``t`` included."""
        return {name: self._row[i] for name, i in self._index.items()}

    def commit(self) -> None:
        """Write the row of the step that just ended; its time is now."""
        self._row[0] = time.monotonic()
        self._sink.write_step(self._row)

    def finish_request(self, values: Mapping[str, float]) -> None:
        """Write a finished request; ``values`` has every request column."""
        self._sink.write_request([values[name] for name in self._request_columns])

    def event(self, kind: str, **fields: object) -> None:
        """Write an event (knob change, mark)."""
        self._sink.write_event({"kind": kind, **fields})
