"""The numbers of a view: each headline beside its baseline, and where a token's time goes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from kvscope import signals
from kvscope.session_trends import Charts
from kvscope.signals.reading import Missing, Reading
from kvscope.store import Segment, Store
from kvscope.view import Headline, Share, View

NOW_S = 10.0
"""Length of "now", seconds."""
MATTERS = 0.02
MATTERS_POINTS = 0.005
"""Changes below these are not worth a colour even when they are measured well."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A headline: the signal behind it and which way is good; a slow one may look further back than now."""

    name: str
    label: str
    signal: str
    better: int
    slow: bool = False


HEADLINES = (
    Shown("kv_memory", "KV memory", "kv_resident_bytes", -1),
    Shown("throughput", "Throughput", "generation_tokens_per_s", 1),
    Shown("ttft", "TTFT p50", "ttft_p50_s", -1, slow=True),
    Shown("tpot", "TPOT p50", "tpot_p50_s", -1, slow=True),
    Shown("running", "Running", "running_requests", 0),
    Shown("waiting", "Waiting", "waiting_requests", 0),
    Shown("accuracy", "Accuracy", "right_token_share", 1, slow=True),
)
INSTEAD = {"kv_resident_bytes": ("kv_usage", "KV usage", "kv_usage_ratio", 0)}
"""What stands in for a headline that an engine does not report."""

PARTS = (
    ("linear", "linear", "linear_share"),
    ("attend", "attend", "attend_share"),
    ("host", "host", "host_share"),
    ("sample", "sample", "sample_share"),
    ("index", "index", "index_share"),
    ("gather", "gather", "gather_share"),
    ("decompress", "decompress", "decompress_share"),
    ("transfer", "tier move", "transfer_share"),
    ("unaccounted", "unaccounted", "unaccounted_share"),
)
REQUEST = (("queue", "queue", "queue_time_mean_s"), ("prefill", "prefill", "prefill_time_mean_s"))

Told = Callable[[str], Reading | Missing]


class Reader:
    """Computes signals over now and over the baseline; a baseline that is over is computed once."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.current: Segment | None = None
        self.baseline: Segment | None = None
        self.end_s = 0.0
        """The moment that is read at: just past the newest sample, unless somebody went back in time."""
        self._remembered: dict[tuple[Segment | str | float, ...], Reading | Missing] = {}

    def at(self, current: Segment | None, baseline: Segment | None) -> None:
        """Choose the two segments that are read from here on."""
        key = (baseline.name, baseline.start_s, baseline.end_s) if baseline else None
        old = (self.baseline.name, self.baseline.start_s, self.baseline.end_s) if self.baseline else None
        if key != old:
            self._remembered.clear()
        self.current, self.baseline = current, baseline
        self.end_s = current.end_s if current else 0.0

    def now(self, name: str, slow: bool = False) -> Reading | Missing:
        """A signal over the last seconds of the current segment; a slow one over as much of it as it needs."""
        segment = self.current
        if segment is None:
            return Missing("no sample yet", "")
        found: Reading | Missing = Missing("no sample yet", "")
        for length in (NOW_S, 6 * NOW_S, math.inf) if slow else (NOW_S,):
            start = max(segment.start_s, segment.end_s - length)
            found = signals.compute(name, self.store, Segment(segment.name, start, segment.end_s, segment.tags))
            if isinstance(found, Reading) or start == segment.start_s:
                break
        if isinstance(found, Missing) and segment.end_s - segment.start_s < 3.0 and self.baseline is not None:
            return Missing("measuring", "") if isinstance(self.was(name), Reading) else found
        return found

    def was(self, name: str) -> Reading | Missing:
        """A signal over the baseline segment."""
        if self.baseline is None:
            return Missing("no baseline", "press b")
        if name not in signals.names():
            return Missing("no such signal")
        key = (name,)
        if key not in self._remembered:
            self._remembered[key] = signals.compute(name, self.store, self.baseline)
        return self._remembered[key]


def numbers(reader: Reader, charts: Charts) -> View:
    """A view with every number in it and nothing else."""
    total = token_time(reader)
    whole, path = request_path(reader)
    return View(
        target="",
        kind="",
        now_s=0.0,
        alive=True,
        headlines=headlines(reader),
        accounting=accounting(reader, total),
        token_time=total,
        request_path=path,
        request_time=whole,
        trends=charts.trends(reader.now, reader.was),
        layers=charts.layers(),
        window=charts.window,
    )


def headlines(reader: Reader) -> tuple[Headline, ...]:
    """The header strip."""
    return tuple(_headline(reader, shown) for shown in HEADLINES)


def _headline(reader: Reader, shown: Shown) -> Headline:
    now = reader.now(shown.signal, shown.slow)
    if isinstance(now, Missing) and shown.signal in INSTEAD and now.reason != "measuring":
        other = Shown(*INSTEAD[shown.signal])
        instead = reader.now(other.signal)
        if isinstance(instead, Reading):
            return compared(other, instead, reader.was(other.signal) if reader.baseline else None)
    return compared(shown, now, reader.was(shown.signal) if reader.baseline else None)


def compared(shown: Shown, now: Reading | Missing, was: Reading | Missing | None) -> Headline:
    """A reading beside its baseline: relative change, or points for shares, and whether it stands out of the noise."""
    if not isinstance(now, Reading) or not isinstance(was, Reading):
        return Headline(shown.name, shown.label, now, was, None, shown.better)
    points = now.unit == "ratio"
    change = now.value - was.value if points else (now.value / was.value - 1 if was.value else None)
    sure = abs(now.value - was.value) > math.hypot(now.error, was.error)
    matters = change is not None and abs(change) >= (MATTERS_POINTS if points else MATTERS)
    return Headline(shown.name, shown.label, now, was, change, shown.better, points, sure and matters)


def token_time(reader: Reader) -> Headline:
    """Decode seconds per output token."""
    shown = Shown("token_time", "One output token", "decode_s_per_token", -1)
    return compared(shown, reader.now(shown.signal), reader.was(shown.signal) if reader.baseline else None)


def accounting(reader: Reader, total: Headline) -> tuple[Share, ...]:
    """Every part of a decode step; they sum to one with what is unaccounted."""
    whole = total.now.value if isinstance(total.now, Reading) else None
    return tuple(_part(reader, name, label, signal, whole) for name, label, signal in PARTS)


def _part(reader: Reader, name: str, label: str, signal: str, whole: float | None) -> Share:
    now, was = reader.now(signal), reader.was(signal)
    base = was.value if isinstance(was, Reading) else None
    if isinstance(now, Missing):
        return Share(name, label, now, base)
    return Share(name, label, now.value, base, now.value * whole if whole is not None else None)


def request_path(reader: Reader) -> tuple[Headline, tuple[Share, ...]]:
    """Queue, prefill and decode as shares of the mean request; decode is what the other two leave."""
    shown = Shown("request_time", "One request", "e2e_mean_s", -1, slow=True)
    total = compared(shown, reader.now(shown.signal, True), reader.was(shown.signal) if reader.baseline else None)
    parts = [_request_part(reader, total, *part) for part in REQUEST]
    known = [part.share for part in parts if not isinstance(part.share, Missing)]
    bases = [part.baseline for part in parts if part.baseline is not None]
    rest: float | Missing = Missing("queue or prefill time is unknown", "")
    if len(known) == len(parts):
        rest = max(1.0 - sum(known), 0.0)
    base = max(1.0 - sum(bases), 0.0) if len(bases) == len(parts) else None
    seconds = rest * total.now.value if isinstance(total.now, Reading) and not isinstance(rest, Missing) else None
    return total, (*parts, Share("decode", "decode", rest, base, seconds))


def _request_part(reader: Reader, total: Headline, name: str, label: str, signal: str) -> Share:
    now, was = reader.now(signal, True), reader.was(signal)
    base = None
    if isinstance(was, Reading) and isinstance(total.baseline, Reading) and total.baseline.value > 0:
        base = was.value / total.baseline.value
    if isinstance(now, Missing):
        return Share(name, label, now, base)
    if not isinstance(total.now, Reading) or total.now.value <= 0:
        return Share(
            name, label, total.now if isinstance(total.now, Missing) else Missing("requests took no time"), base
        )
    return Share(name, label, min(now.value / total.now.value, 1.0), base, now.value)
