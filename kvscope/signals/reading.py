"""A signal's value with its error, or why it has none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Reading:
    """``value ± error`` (error is two standard errors of the mean of the batch means), over ``batches`` batches.

    ``source`` says where the number comes from ("measured: step rows", "inferred: histogram buckets"). ``samples`` is
    how many raw values went in. A ``count`` is exact over its ``span_s`` seconds, and another stretch counts another
    number; a ``fact`` is exact and stays, as a setting does; everything else is an ``estimate``.
    """

    value: float
    error: float
    unit: str
    source: str = ""
    batches: int = 0
    samples: int = 0
    kind: Literal["estimate", "count", "fact"] = "estimate"
    span_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Missing:
    """No value, and what would supply one. Never 0, never False."""

    reason: str
    remedy: str = ""
