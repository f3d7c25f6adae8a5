"""Named numbers over a segment: ``value ± error``, or why there is none. Formulas live in the files of this folder."""

from __future__ import annotations

import importlib
import pkgutil

from kvscope.errors import UsageError, nearest
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import SIGNALS, Signal
from kvscope.signals.window import Window
from kvscope.store import Segment, Store

__all__ = ["Missing", "Reading", "compute", "describe", "find", "names"]

_HELPERS = {"batches", "intervals", "raw", "reading", "registry", "token_time", "window"}


def _discover() -> None:
    for module in pkgutil.iter_modules(__path__):
        if module.name not in _HELPERS:
            importlib.import_module(f"{__name__}.{module.name}")


def names() -> list[str]:
    """Names of all signals, sorted."""
    return sorted(SIGNALS)


def find(name: str) -> Signal:
    """Return a signal; UsageError names the nearest when there is none."""
    if name not in SIGNALS:
        raise UsageError(f"no signal {name!r}{nearest(name, SIGNALS)}")
    return SIGNALS[name]


def describe(name: str) -> tuple[str, str, tuple[str, ...]]:
    """Return unit, help and the metrics a signal needs."""
    known = find(name)
    return known.unit, known.help, known.needs


def compute(name: str, store: Store, segment: Segment) -> Reading | Missing:
    """Compute a signal over a segment; the same question is answered from memory until the store changes."""
    formula = find(name).formula
    place = (segment.name, segment.start_s, segment.end_s)
    answers = store.memo(segment)
    known = answers.get((name, place))
    if isinstance(known, Reading | Missing):
        return known
    # A window holds copies of what it read: it must not outlive the tick, even where its answers do.
    window = store.memo().get(place)
    if not isinstance(window, Window):
        window = store.memo()[place] = Window(store, segment)
    answer = answers[name, place] = formula(window)
    return answer


_discover()
