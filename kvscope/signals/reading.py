"""A signal's value with its error, or why it has none."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reading:
    """``value ± error`` (error is two standard errors of the mean of the batch means), over ``batches`` batches.

    ``source`` says where the number comes from ("measured: step rows", "inferred: histogram buckets"). ``samples`` is
    how many raw values went in. A count is ``exact``: it happened so often, and another count is another number.
    """

    value: float
    error: float
    unit: str
    source: str = ""
    batches: int = 0
    samples: int = 0
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Missing:
    """No value, and what would supply one. Never 0, never False."""

    reason: str
    remedy: str = ""
