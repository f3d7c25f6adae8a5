"""Kernels, compilers and allocators: what a trace or a benchmark says of a single call."""

from __future__ import annotations

from collections.abc import Callable

from kvscope.signals.latency import mean_of
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import signal
from kvscope.signals.window import Window

CALLS = {
    "prefill_attention_s": ("kernel.prefill_attention", "One attention kernel call of prefill, mean."),
    "decode_attention_s": ("kernel.decode_attention", "One attention kernel call of decode, mean."),
    "kv_write_s": ("kernel.kv_write", "Writing new KV into the cache, a layer and step, mean."),
    "request_overhead_s": ("host.request_overhead", "Time of a request spent outside the device, mean."),
}
"""Signal → the observation it averages and its help."""


def _mean(metric: str) -> Callable[[Window], Reading | Missing]:
    return lambda window: mean_of(window, metric, "s")


for _name, (_metric, _help) in CALLS.items():
    signal(_name, unit="s", needs=(_metric,), help=_help)(_mean(_metric))


@signal(
    "kv_write_over_attention",
    unit="x",
    needs=("kernel.kv_write", "kernel.prefill_attention", "kernel.decode_attention"),
    help="Time of writing KV / time of the larger attention call beside it.",
)
def kv_write_over_attention(window: Window) -> Reading | Missing:
    write = mean_of(window, "kernel.kv_write", "s")
    if isinstance(write, Missing):
        return write
    calls = [mean_of(window, f"kernel.{phase}_attention", "s") for phase in ("prefill", "decode")]
    known = [call for call in calls if isinstance(call, Reading) and call.value > 0]
    if not known:
        return next(call for call in calls if isinstance(call, Missing))
    largest = max(known, key=lambda call: call.value)
    value = write.value / largest.value
    error = (write.error**2 + (value * largest.error) ** 2) ** 0.5 / largest.value
    return Reading(value, error, "x", write.source, write.batches, write.samples)


@signal(
    "kv_write_launches",
    unit="launches",
    needs=("kernel.kv_write_launches",),
    help="Kernels launched to write KV, a layer and step.",
)
def kv_write_launches(window: Window) -> Reading | Missing:
    return window.setting_reading("kernel.kv_write_launches", "launches")


@signal(
    "compile_events",
    unit="events",
    needs=("compile.events",),
    help="Kernels and graphs compiled or captured in this segment.",
)
def compile_events(window: Window) -> Reading | Missing:
    return _count(window, "compile.events")


@signal(
    "oom_events", unit="events", needs=("events.oom",), help="Allocations of device memory that failed in this segment."
)
def oom_events(window: Window) -> Reading | Missing:
    return _count(window, "events.oom")


def _count(window: Window, metric: str) -> Reading | Missing:
    counter = window.counter(metric)
    if isinstance(counter, Missing):
        return counter
    value = counter.grown([counter.start_s, counter.end_s])[0]
    return Reading(value, 0.0, "events", window.source(counter), 1, counter.samples)


@signal(
    "compile_time_share",
    unit="ratio",
    needs=("compile.time", "time.step"),
    help="Share of the step time spent on compiling and capturing.",
)
def compile_time_share(window: Window) -> Reading | Missing:
    spent, steps = window.increase_of("compile.time"), window.increase_of("time.step")
    events = window.increase_of("compile.events")
    if isinstance(spent, Missing):
        return spent
    if isinstance(steps, Missing):
        return steps
    if steps <= 0:
        return Missing("no step ran in this segment", "send the engine some work")
    # Compiling comes in a few long bursts: their number, not the batches' spread, says how sure the share is.
    count = 0.0 if isinstance(events, Missing) else events
    error = 2 * spent / steps / max(count, 1.0) ** 0.5
    return Reading(spent / steps, error, "ratio", f"measured: {count:g} compilations", 1, round(count))


@signal(
    "alloc_stall_share",
    unit="ratio",
    needs=("alloc.stall_time", "time.step"),
    help="Share of the step time in which steps wait for device memory to be freed and got again.",
)
def alloc_stall_share(window: Window) -> Reading | Missing:
    return window.ratio(window.counter("alloc.stall_time"), window.counter("time.step"), "ratio", "no step ran")
