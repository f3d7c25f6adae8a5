"""The list of signals: filled by decorated functions, read by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvscope.signals.reading import Missing, Reading
from kvscope.signals.window import Window

Formula = Callable[[Window], Reading | Missing]
SHARE = "ratio"
"""The unit of a share, 0 to 1: the only one whose changes may be given in points."""


@dataclass(frozen=True, slots=True)
class Signal:
    """A named formula over a segment; ``needs`` are the metrics it is read from."""

    name: str
    unit: str
    needs: tuple[str, ...]
    help: str
    formula: Formula


SIGNALS: dict[str, Signal] = {}


def signal(name: str, *, unit: str, needs: tuple[str, ...], help: str) -> Callable[[Formula], Formula]:
    """Register the decorated formula under ``name``; a second of that name raises."""

    def register(formula: Formula) -> Formula:
        if name in SIGNALS:
            there, here = SIGNALS[name].formula.__module__, formula.__module__
            raise ValueError(f"signal {name!r} is defined twice: in {there} and in {here}")
        SIGNALS[name] = Signal(name, unit, needs, help, formula)
        return formula

    return register
