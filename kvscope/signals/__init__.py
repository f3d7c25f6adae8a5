"""Named numbers over a segment: ``value ± error``, an exact count, or why there is none.

A signal is an expression (``kvscope.signals.algebra``): frozen data, said once in a file of this folder, read so:

    compute(name, store, segment)            Reading | Missing      what everybody asks; remembered until samples come
    cells(name, store, segment, label)       {value: Reading | Missing}   one replica, rank, layer, GPU, pool each
    Line(name, bin_s).points(store, a, b)    ((t, value), …) | Missing    a chart's points: same resets, same gaps;
                                             keep the object: bins that are over are read once. ``cell=`` draws one cell
    promql(name, names)                      str | None             a rule over one engine's own page
    find(name)                               Signal: .label .unit .better .help .needs .expr

Where a name stands, an expression may: ``compute(gauge("sched.waiting").during(BUSY), …)``. Of a signal that is a
gauge, ``NAME_while_busy`` and ``NAME_while_waiting`` are signals too.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import replace

from kvscope.errors import UsageError, nearest
from kvscope.signals import by_cell
from kvscope.signals.algebra import BUSY, QUEUED, Expr, Gauge, needs
from kvscope.signals.curves import Curve
from kvscope.signals.evaluate import evaluate
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import SIGNALS, Signal
from kvscope.signals.samples import Cell, Samples
from kvscope.store import Segment, Store

__all__ = ["Cell", "Line", "Missing", "Reading", "cells", "compute", "describe", "find", "known", "names"]

_TOOLS = {
    "algebra",
    "batches",
    "by_cell",
    "curves",
    "evaluate",
    "flows",
    "intervals",
    "promql",
    "reading",
    "registry",
    "samples",
    "significance",
    "token_time",
}
WHILE = {"_while_busy": (BUSY, "any request is there"), "_while_waiting": (QUEUED, "requests wait")}
"""Endings by which a gauge is asked for under a condition."""


def _discover() -> None:
    for module in pkgutil.iter_modules(__path__):
        if module.name not in _TOOLS:
            importlib.import_module(f"{__name__}.{module.name}")


def names() -> list[str]:
    """Names of all signals, sorted; those under a condition are known beside them."""
    return sorted(SIGNALS)


def known(name: str) -> bool:
    """Whether there is a signal of that name."""
    return name in SIGNALS or _conditional(name) is not None


def find(name: str) -> Signal:
    """Return a signal; UsageError names the nearest when there is none."""
    found = SIGNALS.get(name) or _conditional(name)
    if found is None:
        raise UsageError(f"no signal {name!r}{nearest(name, SIGNALS)}")
    return found


def _conditional(name: str) -> Signal | None:
    for ending, (condition, says) in WHILE.items():
        plain = SIGNALS.get(name.removesuffix(ending)) if name.endswith(ending) else None
        if plain is not None and isinstance(plain.expr, Gauge):
            told = f"{plain.help.rstrip('.')}, while {says}."
            return replace(plain, name=name, expr=plain.expr.during(condition), help=told)
    return None


def describe(name: str) -> tuple[str, str, tuple[str, ...]]:
    """Return unit, help and the metrics a signal needs."""
    found = find(name)
    return found.unit, found.help, found.needs


def compute(asked: str | Expr, store: Store, segment: Segment) -> Reading | Missing:
    """Compute a signal over a segment; the same question is answered from memory until the store changes."""
    place = (segment.name, segment.start_s, segment.end_s)
    answers = store.memo(segment)
    known = answers.get((asked, place))
    if isinstance(known, Reading | Missing):
        return known
    answer = answers[asked, place] = _read(asked, samples_of(store, segment))
    return answer


def cells(asked: str | Expr, store: Store, segment: Segment, label: str) -> dict[str, Reading | Missing]:
    """Return label value → the signal over that cell alone; empty where nobody tells cells apart."""
    samples = samples_of(store, segment)
    found = by_cell.cells_of(samples, find(asked).needs if isinstance(asked, str) else needs(asked), label)
    return {cell.value: _read(asked, samples.only(cell)) for cell in found}


def samples_of(store: Store, segment: Segment) -> Samples:
    """Return a segment as expressions read it; it holds copies of what it read, and does not outlive the tick."""
    place = (segment.name, segment.start_s, segment.end_s)
    samples = store.memo().get(place)
    if not isinstance(samples, Samples):
        samples = store.memo()[place] = Samples(store, segment)
    return samples


def _read(asked: str | Expr, samples: Samples) -> Reading | Missing:
    if isinstance(asked, Expr):
        return evaluate(asked, samples)
    signal = find(asked)
    found = evaluate(signal.expr, samples)
    return replace(found, unit=signal.unit) if isinstance(found, Reading) and found.unit != signal.unit else found


class Line(Curve):
    """A signal's line on a time axis."""

    def __init__(self, asked: str | Expr, bin_s: float, cell: Cell | None = None) -> None:
        super().__init__(find(asked).expr if isinstance(asked, str) else asked, bin_s, cell)


_discover()
