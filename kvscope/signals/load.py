"""Load: how much was asked, how much runs, and what stops more from running."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvscope.signals.batches import BATCHES, mean_and_error, ratio_and_error
from kvscope.signals.binding import step_share
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import signal
from kvscope.signals.window import Window


@signal("generation_tokens_per_s", unit="1/s", needs=("tokens.generated",), help="Output tokens per second.")
def generation_tokens_per_s(window: Window) -> Reading | Missing:
    return window.rate("tokens.generated", "1/s")


@signal(
    "prompt_tokens_per_s", unit="1/s", needs=("tokens.prompt",), help="Prompt tokens per second, prefix hits included."
)
def prompt_tokens_per_s(window: Window) -> Reading | Missing:
    return window.rate("tokens.prompt", "1/s")


@signal("requests_per_s", unit="1/s", needs=("requests.finished",), help="Requests finished per second.")
def requests_per_s(window: Window) -> Reading | Missing:
    return window.rate("requests.finished", "1/s")


@signal("running_requests", unit="requests", needs=("sched.running",), help="Requests running, time average.")
def running_requests(window: Window) -> Reading | Missing:
    return window.mean("sched.running", "requests")


@signal("waiting_requests", unit="requests", needs=("sched.waiting",), help="Requests waiting, time average.")
def waiting_requests(window: Window) -> Reading | Missing:
    return window.mean("sched.waiting", "requests")


@signal(
    "deferred_requests",
    unit="requests",
    needs=("sched.deferred",),
    help="Requests waiting for a reason other than capacity, time average.",
)
def deferred_requests(window: Window) -> Reading | Missing:
    return window.mean("sched.deferred", "requests")


@signal("preemptions_per_s", unit="1/s", needs=("sched.preemptions",), help="Running requests put back per second.")
def preemptions_per_s(window: Window) -> Reading | Missing:
    return window.rate("sched.preemptions", "1/s")


@signal(
    "demand_factor",
    unit="x",
    needs=("sched.running", "sched.waiting"),
    help="(Running + waiting) / running: by how much concurrency could grow before the queue is empty.",
)
def demand_factor(window: Window) -> Reading | Missing:
    rows = _busy(window)
    if isinstance(rows, Missing):
        return rows
    value, error = ratio_and_error(*_batched(rows, lambda row: row[0] + row[1], lambda row: row[0]))
    return Reading(value, error, "x", "measured: busy samples", min(BATCHES, len(rows)), len(rows))


@signal(
    "running_cap_share",
    unit="ratio",
    needs=("sched.running", "sched.max_running"),
    help="Running requests / the most that may run. Where no cap is reported: against the most ever seen running.",
)
def running_cap_share(window: Window) -> Reading | Missing:
    rows = _busy(window)
    if isinstance(rows, Missing):
        return rows
    cap, source = _cap(window, rows)
    return _mean_of(rows, lambda row: row[0] / cap, source)


@signal(
    "running_flat_share",
    unit="ratio",
    needs=("sched.running", "sched.waiting"),
    help="Share of the busy samples in which as many requests ran as were ever seen running in the segment.",
)
def running_flat_share(window: Window) -> Reading | Missing:
    rows = _busy(window)
    if isinstance(rows, Missing):
        return rows
    top = max(row[0] for row in rows)
    return _mean_of(rows, lambda row: float(row[0] >= top), f"measured: the most seen running was {top:g}")


@signal(
    "cap_bound_share",
    unit="ratio",
    needs=("sched.running", "sched.waiting", "sched.max_running", "sched.cap_bound_steps", "batch.steps"),
    help="Share of the steps, else of the busy samples, in which requests waited while as many ran as may run.",
)
def cap_bound_share(window: Window) -> Reading | Missing:
    # A gauge is read after a step, when requests that it ended no longer run; the scheduler saw them.
    counted = step_share(window, "sched.cap_bound_steps")
    if isinstance(counted, Reading):
        return counted
    rows = _busy(window)
    if isinstance(rows, Missing):
        return rows
    cap, source = _cap(window, rows)
    return _mean_of(rows, lambda row: float(row[0] >= cap and row[1] > 0), source)


Row = tuple[float, ...]


def _busy(window: Window) -> list[Row] | Missing:
    """Return (running, waiting) of the samples in which there was any request."""
    rows = window.together("sched.running", "sched.waiting")
    if isinstance(rows, Missing):
        return rows
    busy = [row for row in rows if row[0] + row[1] > 0]
    if len(busy) < 3 or not any(row[0] for row in busy):
        return Missing("nothing was running in this segment", "send the engine some work")
    return busy


def _cap(window: Window, rows: Sequence[Row]) -> tuple[float, str]:
    cap = window.setting("sched.max_running")
    if isinstance(cap, Missing) or cap <= 0:
        top = max(row[0] for row in rows)
        return top, f"inferred: no cap is reported, the most seen running was {top:g}"
    return cap, f"measured: configured cap {cap:g}"


def _batched(
    rows: Sequence[Row], top: Callable[[Row], float], bottom: Callable[[Row], float]
) -> tuple[list[float], list[float]]:
    count = min(BATCHES, len(rows))
    groups = [rows[len(rows) * i // count : len(rows) * (i + 1) // count] for i in range(count)]
    return [sum(map(top, group)) for group in groups], [sum(map(bottom, group)) for group in groups]


def _mean_of(rows: Sequence[Row], value_of: Callable[[Row], float], source: str) -> Reading:
    sums, counts = _batched(rows, value_of, lambda _row: 1.0)
    value, error = mean_and_error([total / count for total, count in zip(sums, counts, strict=True)])
    return Reading(value, error, "ratio", source, len(sums), len(rows))
