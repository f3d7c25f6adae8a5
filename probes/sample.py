"""One value of one metric at one time: the only thing that travels from a source to the store."""

from __future__ import annotations

from typing import NamedTuple

Labels = tuple[tuple[str, str], ...]


class Sample(NamedTuple):
    """One value of a canonical metric.

    ``metric`` is a name of the catalogue (a histogram series adds ``.bucket``, ``.sum`` or ``.count``), ``value`` is in
    the catalogue's unit, ``t`` is wall time in seconds since the epoch and never goes back within one source.
    ``labels`` are sorted pairs.
    """

    metric: str
    value: float
    t: float
    labels: Labels = ()


def labels_of(**pairs: str) -> Labels:
    """Build labels in their canonical (sorted) order."""
    return tuple(sorted(pairs.items()))
