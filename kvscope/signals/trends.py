"""Within one segment: how the last third of the time compares with the first, where nobody marked a change."""

from __future__ import annotations

from collections.abc import Sequence

from kvscope.signals.batches import edges, ratio_and_error
from kvscope.signals.latency import mean_of
from kvscope.signals.raw import WATCH_LONGER
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import signal
from kvscope.signals.window import Window
from kvscope.store import Segment

_PIECES = 12
_PART = 4


def _thirds(window: Window) -> tuple[Window, Window]:
    """Return windows over the first and the last third."""
    cuts = edges(window.segment.start_s, window.segment.end_s, 3)
    first = Segment(window.segment.name, cuts[0], cuts[1], window.segment.tags)
    last = Segment(window.segment.name, cuts[2], cuts[3], window.segment.tags)
    return Window(window.store, first), Window(window.store, last)


def _change(before: Reading | Missing, after: Reading | Missing) -> Reading | Missing:
    """Return the relative change (0.1 = 10 % more)."""
    if isinstance(before, Missing):
        return before
    if isinstance(after, Missing):
        return after
    if before.value <= 0:
        return Missing("there was nothing in the first third of this segment", WATCH_LONGER)
    ratio = after.value / before.value
    error = ((after.error / before.value) ** 2 + (ratio * before.error / before.value) ** 2) ** 0.5
    return Reading(ratio - 1, error, "x", "measured: last third against the first", after.batches, after.samples)


@signal(
    "kv_usage_trend",
    unit="x",
    needs=("kv.usage_ratio",),
    help="Change of the pool's use from the first third of the segment to the last: -0.5 is half.",
)
def kv_usage_trend(window: Window) -> Reading | Missing:
    first, last = _thirds(window)
    return _change(first.mean("kv.usage_ratio", "ratio"), last.mean("kv.usage_ratio", "ratio"))


@signal(
    "generation_trend",
    unit="x",
    needs=("tokens.generated",),
    help="Change of output tokens per second from the first third of the segment to the last: 0 is none.",
)
def generation_trend(window: Window) -> Reading | Missing:
    counter = window.counter("tokens.generated")
    if isinstance(counter, Missing):
        return counter
    if counter.samples < 3 * _PART:
        return Missing("too few samples to compare thirds of this segment", WATCH_LONGER)
    cuts = edges(counter.start_s, counter.end_s, _PIECES)
    grown, width = counter.grown(cuts), (counter.end_s - counter.start_s) / _PIECES
    return _change(_rate(grown[:_PART], width), _rate(grown[-_PART:], width))


def _rate(grown: Sequence[float], width_s: float) -> Reading:
    value, error = ratio_and_error(grown, [width_s] * len(grown))
    return Reading(value, error, "1/s", "measured", len(grown), len(grown))


@signal(
    "token_time_s",
    unit="s",
    needs=("latency.tpot", "latency.itl"),
    help="Time per output token of a request, mean; the mean gap between tokens where requests are not told.",
)
def token_time_s(window: Window) -> Reading | Missing:
    per_request = mean_of(window, "latency.tpot", "s")
    if isinstance(per_request, Reading):
        return per_request
    gaps = mean_of(window, "latency.itl", "s")
    return gaps if isinstance(gaps, Reading) else per_request


@signal(
    "tpot_trend",
    unit="x",
    needs=("latency.tpot", "latency.itl"),
    help="Change of the time per output token from the first third of the segment to the last: 0.5 is half more.",
)
def tpot_trend(window: Window) -> Reading | Missing:
    first, last = _thirds(window)
    return _change(token_time_s(first), token_time_s(last))
