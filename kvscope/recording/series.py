"""What a recorded series must be before anything is computed from it."""

from __future__ import annotations

from collections.abc import Iterable

from probes import border
from probes.sample import Labels


def checked_series(metric: object, labels: Iterable[tuple[object, object]]) -> tuple[str, Labels]:
    """Return a series as it may enter a store. ValueError where a name is none, or a bucket has no bound."""
    name = border.text(metric, "metric")
    pairs = tuple(sorted((border.text(key, "label"), border.text(value, f"{name}: label")) for key, value in labels))
    if name.endswith(".bucket"):
        bound = dict(pairs).get("le")
        if bound is None:
            raise ValueError(f"{name}: a bucket without its bound, expected a label le")
        if bound != "+Inf":
            border.written(bound, f"{name}: le")
    return name, pairs
