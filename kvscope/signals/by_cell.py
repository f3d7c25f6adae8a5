"""The third reader of an expression: one reading for each replica, rank, layer, GPU or request class."""

from __future__ import annotations

import math
from collections.abc import Iterable

from kvscope.signals.algebra import Expr, OverCells, needs
from kvscope.signals.evaluate import evaluate
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.samples import Cell, Samples


def cells_of(samples: Samples, metrics: Iterable[str], label: str) -> list[Cell]:
    """Return the cells that any of ``metrics`` tell apart by ``label``, numbers in their order."""
    found: dict[str, Cell] = {}
    for metric in metrics:
        for stem in (metric, f"{metric}.count"):
            for labels in samples.keys(stem):
                value = dict(labels).get(label)
                if value is not None and value not in found:
                    found[value] = Cell(label, value, tuple(pair for pair in labels if pair[0] != label))
    return sorted(found.values(), key=lambda cell: (len(cell.value), cell.value))


def cells(expr: Expr, samples: Samples, label: str) -> dict[str, Reading | Missing]:
    """Return label value → the expression over that cell alone; empty where nobody tells cells apart."""
    return {cell.value: evaluate(expr, samples.only(cell)) for cell in cells_of(samples, needs(expr), label)}


def over_cells(expr: OverCells, samples: Samples) -> Reading | Missing:
    """Return one number of all cells; Missing where there is one only, or where one of them says nothing."""
    told = cells(expr.inner, samples, expr.label)
    if not told:
        missing = evaluate(expr.inner, samples)
        return missing if isinstance(missing, Missing) else _one(expr.label)
    known = [(name, one) for name, one in told.items() if isinstance(one, Reading)]
    if len(known) < len(told):
        return next(one for one in told.values() if isinstance(one, Missing))
    if len(known) == 1 and expr.how in ("spread", "most_over_mean"):
        return _one(expr.label)
    high, low = (pick(known, key=lambda pair: pair[1].value) for pick in (max, min))
    name, best = low if expr.how == "lowest" else high
    value, error, unit = best.value, best.error, best.unit
    source = f"measured: {expr.label} {name} of {len(known)}"
    if expr.how == "spread":
        value, error = high[1].value - low[1].value, math.hypot(high[1].error, low[1].error)
    elif expr.how == "most_over_mean":
        mean = sum(one.value for _, one in known) / len(known)
        if mean <= 0:
            return Missing(f"every {expr.label} tells 0 in this segment", "send the engine some work")
        value, error, unit = best.value / mean, best.error / mean, "x"
    return Reading(value, error, unit, source, best.batches, best.samples)


def _one(label: str) -> Missing:
    return Missing(f"one {label} only", f"a run over several {label}s")
