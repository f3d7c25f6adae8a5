"""A gate on a comparison: ``tpot_p50 > +5%`` fails, passes, or cannot be told from the intervals."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from kvscope.errors import UsageError, nearest
from kvscope.result.comparison import Change, Comparison

Outcome = Literal["pass", "fail", "cannot tell"]
_CONDITION = re.compile(r"\s*([\w. ]+?)\s*(>=|<=|>|<)\s*([+-]?\d+(?:\.\d+)?)\s*(%|pp)\s*")


@dataclass(frozen=True, slots=True)
class Gate:
    """What must not be: the change of ``name`` above (or below) ``limit``, relative or, for a share, in points."""

    name: str
    above: bool
    limit: float
    text: str


@dataclass(frozen=True, slots=True)
class Passage:
    """How a gate came out, and why in words."""

    gate: Gate
    outcome: Outcome
    why: str


def parse(text: str) -> Gate:
    """Read ``NAME > +5%`` or ``NAME < -2pp``. UsageError for anything else."""
    matched = _CONDITION.fullmatch(text)
    if matched is None:
        raise UsageError(f"--fail-if {text!r}: expected NAME > +5% or NAME < -5% (pp for points of a share)")
    return Gate(matched[1], matched[2].startswith(">"), float(matched[3]) / 100, text.strip())


def passed(gate: Gate, found: Comparison) -> Passage:
    """Hold a comparison against a gate. UsageError for a quantity that neither side has."""
    change = next((one for one in found.changes if one.name == gate.name), None)
    if change is None:
        names = sorted({*found.a.quantities, *found.b.quantities})
        if gate.name in names:
            return Passage(gate, "cannot tell", "only one side has it")
        raise UsageError(f"--fail-if {gate.text!r}: no quantity {gate.name!r}{nearest(gate.name, names)}")
    return Passage(gate, *_held(gate, change))


def _held(gate: Gate, change: Change) -> tuple[Outcome, str]:
    sign = 1.0 if gate.above else -1.0
    moved, limit = sign * change.change, sign * gate.limit
    said = f"{change.change:+.1%}"
    if change.error is None:
        return "cannot tell", f"{said}, and nobody knows by how much two equal runs differ"
    interval = f"{said} ± {change.error:.1%}"
    if moved - change.error > limit:
        return "fail", interval
    if moved + change.error <= limit:
        return "pass", interval
    return "cannot tell", f"{interval} spans {gate.limit:+.1%}"
