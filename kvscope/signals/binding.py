"""What bound each step: of all steps, the share in which a request had to wait, and for what."""

from __future__ import annotations

from collections.abc import Callable

from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import signal
from kvscope.signals.window import Window

LIMITS = {
    "kv_bound_step_share": ("sched.kv_bound_steps", "a request waited for KV blocks"),
    "cap_bound_step_share": ("sched.cap_bound_steps", "a request waited while the most that may run ran"),
    "budget_bound_step_share": ("sched.budget_bound_steps", "all tokens a step may compute were used, with more to do"),
    "deferred_step_share": ("sched.deferred_steps", "requests waited for reasons other than capacity only"),
}
"""Signal → the counter of steps it reads and what happened in them; one step counts for one limit at most."""


def step_share(window: Window, metric: str) -> Reading | Missing:
    """Return the share of steps that ``metric`` counted."""
    return window.ratio(window.counter(metric), window.counter("batch.steps"), "ratio", "no step ran in this segment")


def _share(metric: str) -> Callable[[Window], Reading | Missing]:
    return lambda window: step_share(window, metric)


for _name, (_metric, _what) in LIMITS.items():
    signal(_name, unit="ratio", needs=(_metric, "batch.steps"), help=f"Share of steps in which {_what}.")(
        _share(_metric)
    )
