"""The list of signals: each a name, an expression, and what a person needs to read it. Filled by the files beside."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

from kvscope.signals import algebra
from kvscope.signals.algebra import Expr, Procedure
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.samples import Samples

E = TypeVar("E", bound=Expr)
Better = Literal["up", "down", ""]
UP: Better = "up"
DOWN: Better = "down"
NEITHER: Better = ""
_WORDS = {"kv": "KV", "ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2e": "end to end", "gpu": "GPU", "cpu": "CPU"}


@dataclass(frozen=True, slots=True)
class Signal:
    """A named expression; ``better`` says which way is good, where one is."""

    name: str
    expr: Expr
    unit: str
    better: Better
    help: str
    label: str

    @property
    def needs(self) -> tuple[str, ...]:
        """The metrics it is read from."""
        return algebra.needs(self.expr)


SIGNALS: dict[str, Signal] = {}


def declare(name: str, expr: E, better: Better, help: str, *, unit: str = "", label: str = "") -> E:
    """Put a signal on the list and return its expression; a second of that name raises, so does one without a unit."""
    if name in SIGNALS:
        raise ValueError(f"signal {name!r} is defined twice: {SIGNALS[name].help!r} and {help!r}")
    told = unit or algebra.unit(expr)
    if not told:
        raise ValueError(f"signal {name!r}: no unit follows from its expression")
    SIGNALS[name] = Signal(name, expr, told, better, help, label or label_of(name))
    return expr


def procedure(
    name: str, *, unit: str, reads: tuple[str, ...], help: str, better: Better = NEITHER, drawn: Expr | None = None
) -> Callable[[Callable[[Samples], Reading | Missing]], Callable[[Samples], Reading | Missing]]:
    """Declare the decorated function as a signal that no formula says."""

    def register(function: Callable[[Samples], Reading | Missing]) -> Callable[[Samples], Reading | Missing]:
        declare(name, Procedure(function, reads, drawn), better, help, unit=unit)
        return function

    return register


def label_of(name: str) -> str:
    """Return a signal's name as a person reads it: without its unit, abbreviations in capitals."""
    words = re.sub(r"_per_s$", "_a_second", name)
    words = re.sub(r"_(s|bytes|ratio)$", "", words).replace("_", " ")
    return " ".join(_WORDS.get(word, word) for word in words.split())
