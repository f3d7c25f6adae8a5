"""Free memory that nobody can use: holes too short for a block, and pools that belong to another form."""

from __future__ import annotations

from kvscope.signals.memory import over
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import signal
from kvscope.signals.window import Window


@signal(
    "kv_free_share",
    unit="ratio",
    needs=("kv.free_bytes", "kv.reserved_bytes"),
    help="Bytes of the pool that hold no page / bytes of the pool.",
)
def kv_free_share(window: Window) -> Reading | Missing:
    return over(window, "kv.free_bytes", "kv.reserved_bytes", "ratio")


@signal(
    "kv_stranded_share",
    unit="ratio",
    needs=("kv.stranded_bytes", "kv.free_bytes"),
    help="Free bytes that cannot take new tokens (another form's pool, or holes) / free bytes.",
)
def kv_stranded_share(window: Window) -> Reading | Missing:
    return over(window, "kv.stranded_bytes", "kv.free_bytes", "ratio")


@signal(
    "kv_longest_run_share",
    unit="ratio",
    needs=("kv.largest_free_run_bytes", "kv.free_bytes"),
    help="Longest stretch of free bytes in a row / free bytes: 1 is one hole, near 0 many small ones.",
)
def kv_longest_run_share(window: Window) -> Reading | Missing:
    return over(window, "kv.largest_free_run_bytes", "kv.free_bytes", "ratio")


@signal(
    "kv_unusable_failures_per_s",
    unit="1/s",
    needs=("kv.unusable_failures",),
    help="Allocations a second that failed although enough bytes were free in total.",
)
def kv_unusable_failures_per_s(window: Window) -> Reading | Missing:
    return window.rate("kv.unusable_failures", "1/s")


@signal(
    "kv_booked_over_held",
    unit="x",
    needs=("kv.assumed_bytes", "kv.resident_bytes"),
    help="KV bytes admission counts as taken / bytes really held: far above 1 memory is booked for nothing.",
)
def kv_booked_over_held(window: Window) -> Reading | Missing:
    return over(window, "kv.assumed_bytes", "kv.resident_bytes", "x")
