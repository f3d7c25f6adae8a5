"""A check: a signal and a condition on it, as a playbook writes them. No expressions: a formula is a signal."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from kvscope import amounts

Kind = Literal["is", "up", "down", "flat", "not_up", "not_down"]
Where = Literal["baseline", "current", "both"]
CHANGES: tuple[Kind, ...] = ("up", "down", "flat", "not_up", "not_down")
BOUND_KEY = {"up": "at_least", "down": "at_least", "flat": "within", "not_up": "less_than", "not_down": "less_than"}
"""change → the key that carries its bound"""

_BOUND = re.compile(r"(\d+(?:\.\d+)?)\s*(%|pp)?")
_COMPARISON = re.compile(r"(<=|>=)\s*(-?\d+(?:\.\d+)?)\s*(%)?")


@dataclass(frozen=True, slots=True)
class Bound:
    """A size of change: relative (``15%`` or ``0.15``) or in ``points`` of a share (``5pp``)."""

    size: float
    points: bool = False

    def __str__(self) -> str:
        return f"{self.size * 100:g}{'pp' if self.points else '%'}"


@dataclass(frozen=True, slots=True)
class Check:
    """``is`` compares with ``threshold`` (by ``sense``) in segment ``where``; a change is held to ``bound``."""

    name: str
    signal: str
    kind: Kind
    sense: Literal["<=", ">=", ""] = ""
    threshold: float = 0.0
    bound: Bound = Bound(0.0)
    where: Where = "current"
    text: str = ""
    unit: str = ""
    """Of the signal, in which ``threshold`` is told."""

    @property
    def compares(self) -> bool:
        """Whether the check needs a baseline."""
        return self.kind != "is" or self.where != "current"

    @property
    def says(self) -> str:
        """The condition as a person reads it, or the author's own words."""
        if self.text:
            return self.text
        if self.kind == "is":
            where = {"current": "", "baseline": " in the baseline", "both": " in both segments"}[self.where]
            sense = "=" if amounts.yes_no(self.threshold, self.unit) else self.sense
            return f"{sense} {amounts.bound(self.threshold, self.unit)}{where}"
        return condition(self.kind, self.bound)


def condition(kind: Kind, bound: Bound) -> str:
    """Word a change: ``up at least 15%``, ``flat within 5%``, ``not up by 10%``."""
    if kind == "flat":
        return f"flat within {bound}"
    if kind in ("up", "down"):
        return f"{kind} at least {bound}"
    return f"{kind.replace('_', ' ')} by {bound}"


def parse_bound(text: str) -> Bound | None:
    """Read ``0.2``, ``15%`` or ``5pp``; None when it is none of these."""
    found = _BOUND.fullmatch(text.strip())
    if not found:
        return None
    size = float(found[1])
    return Bound(size / 100 if found[2] else size, found[2] == "pp")


def parse_comparison(text: str) -> tuple[Literal["<=", ">="], float] | None:
    """Read ``<= 0.2`` or ``>= 15%``; None when it is neither."""
    found = _COMPARISON.fullmatch(text.strip())
    if not found:
        return None
    sense: Literal["<=", ">="] = "<=" if found[1] == "<=" else ">="
    return sense, float(found[2]) / (100 if found[3] else 1)
