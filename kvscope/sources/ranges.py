"""A saved answer of Prometheus (``query_range``): read as the Prometheus that gave it is read."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from kvscope.errors import SourceError
from kvscope.sources._promapi import Address
from kvscope.sources.prometheus import PrometheusSource
from kvscope.sources.saved import read_text
from kvscope.sources.source import Description, Poll
from probes import border


def looks_ranges(start: bytes) -> bool:
    """Whether a text starts as an answer of Prometheus's API does."""
    return b'"resultType"' in start or (b'"status"' in start and b'"data"' in start and b'"success"' in start)


class RangesSource:
    """Reads one answer, all replicas in it. SourceError when it holds no engine's series over time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            document = border.mapping(border.document(read_text(path), str(path)), str(path))
        except border.Refused as error:
            raise SourceError(str(error)) from error
        data = document.get("data")
        kind = data.get("resultType") if isinstance(data, dict) else None
        if kind != "matrix" or not isinstance(data, dict) or not isinstance(data.get("result"), list):
            raise SourceError(
                f"{path}: a Prometheus answer of type {kind or 'none'!r}; expected a matrix, which query_range gives"
            )
        self._data: dict[str, Any] = data
        times = sorted({float(point[0]) for point in _points(data)})
        if len(times) < 2:
            raise SourceError(f"{path}: an answer of Prometheus with fewer than two times in it")
        step = min(after - before for before, after in pairwise(times))
        span = times[-1] - times[0] + step
        # The grid that the reader asks on begins at zero: its end is the first grid point at or after the last time.
        address = Address(str(path), step_s=step, last_s=span)
        self._inner = PrometheusSource(address, wall=lambda: times[-1] + step, call=self._answer)

    def describe(self) -> Description:
        about = self._inner.describe()
        return Description("series", str(self._path), about.engine, about.version, about.tags, note=about.note)

    def poll(self) -> Poll:
        poll = self._inner.poll()
        return Poll(poll.samples, poll.marks, poll.notices, ended=True)

    def close(self) -> None:
        self._inner.close()

    def _answer(self, path: str, form: Mapping[str, str] | None = None) -> Any:
        if path.startswith("label/"):
            metrics = [one.get("metric") for one in self._data["result"] if isinstance(one, dict)]
            return [one.get("__name__") for one in metrics if isinstance(one, dict)]
        if path == "query_range":
            return self._data
        raise SourceError(f"{self._path}: a saved answer cannot be asked for {path}")


def _points(data: Mapping[str, Any]) -> list[Any]:
    found = []
    for one in data["result"][:100_000]:
        values = one.get("values") if isinstance(one, dict) else None
        if isinstance(values, list):
            found += [
                point
                for point in values
                if isinstance(point, list)
                and len(point) == 2
                and isinstance(point[0], int | float)
                and abs(point[0]) < 1e12
            ]
    return found
