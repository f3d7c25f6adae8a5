"""The vital signs of an engine in a few lines: what every report and the first screen show before any finding."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from kvscope import signals
from kvscope.format import quantity
from kvscope.signals.reading import Missing, Reading
from kvscope.slo import Slo

Tone = Literal["", "bad", "note"]
Read = Callable[[str], Reading | Missing]
QUANTILES = ("p50", "p95", "p99")
_LATENCIES = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2e": "E2E"}


@dataclass(frozen=True, slots=True)
class Vital:
    """One line: its label and what it says; ``values`` are the signals in it."""

    name: str
    label: str
    parts: tuple[tuple[str, Tone], ...]
    values: tuple[tuple[str, float], ...] = ()

    @property
    def text(self) -> str:
        """All parts in one line."""
        return " · ".join(text for text, _ in self.parts)


def vitals(read: Read, slo: Slo | None = None, cap: float | None = None) -> tuple[Vital, ...]:
    """Return the lines that ``read`` (name of a signal → reading) can fill; what nobody tells is left out,
    and what is rightly 0 (rates of requests and tokens, preemptions).

    ``cap``: the most requests that may run, where that is known.
    """
    reader = _Reader(read)
    lines = [_load(reader, cap), _tokens(reader), _kv(reader)]
    shown = [name for name in _LATENCIES if name != "itl" or reader.value("tpot_p50_s") is None]
    lines += [_latency(reader, name, (slo or {}).get(name)) for name in shown]
    return tuple(line for line in lines if line is not None)


class _Reader:
    """Reads signals, and notes the values of the line being written."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self.noted: dict[str, float] = {}

    def reading(self, name: str) -> Reading | None:
        found = self._read(name) if signals.known(name) else None
        if not isinstance(found, Reading):
            return None
        self.noted[name] = found.value
        return found

    def value(self, name: str) -> float | None:
        found = self.reading(name)
        return found.value if found is not None else None

    def line(self, name: str, label: str, parts: list[tuple[str, Tone]]) -> Vital | None:
        noted, self.noted = tuple(self.noted.items()), {}
        return Vital(name, label, tuple(parts), noted) if parts else None


def _load(reader: _Reader, cap: float | None) -> Vital | None:
    """Queue and running against the cap, what is finished and what is turned away."""
    parts: list[tuple[str, Tone]] = []
    running, waiting = (reader.value(name) for name in ("running_requests", "waiting_requests"))
    if running is not None:
        of = f" of {cap:.0f} that may run" if cap and running <= cap else ""
        parts.append((f"running {_count(running)}{of}", ""))
    if waiting is not None:
        parts.append((f"waiting {_count(waiting)}", "bad" if waiting >= max(1.0, running or 0.0) else ""))
    finished, rejected = reader.value("requests_per_s"), reader.value("rejections_per_s")
    if finished:
        parts.append((f"{quantity(finished, '1/s')} finished", ""))
    if rejected:
        parts.append((f"{quantity(rejected, '1/s')} turned away", "bad"))
    return reader.line("load", "load", parts)


def _tokens(reader: _Reader) -> Vital | None:
    """Tokens out and in, the shape of a request, drafts that were right."""
    parts: list[tuple[str, Tone]] = []
    for name, says in (("generation_tokens_per_s", "out"), ("prompt_tokens_per_s", "in")):
        if rate := reader.value(name):
            parts.append((f"{quantity(rate, 'tokens/s')} {says}", ""))
    shape = [reader.value(name) for name in ("prompt_tokens_mean", "output_tokens_mean")]
    if shape[0] is not None and shape[1] is not None:
        parts.append((f"a request: {shape[0]:.0f} in, {shape[1]:.0f} out", ""))
    if (accepted := reader.value("spec_accepted_share")) is not None:
        parts.append((f"drafts right {_percent(accepted)}", ""))
    if joules := reader.value("joules_per_mtoken"):
        parts.append((f"{quantity(joules, 'J')} a million", ""))
    if money := reader.value("money_per_mtoken"):
        parts.append((f"{money:.3g} (price) a million", ""))
    return reader.line("tokens", "tokens", parts)


def _kv(reader: _Reader) -> Vital | None:
    """The pool in use, of how much; prefix hits; what was thrown out."""
    parts: list[tuple[str, Tone]] = []
    usage, tokens, size = (reader.value(name) for name in ("kv_usage_ratio", "kv_capacity_tokens", "kv_reserved_bytes"))
    held = reader.value("kv_resident_bytes")
    if usage is not None:
        of = [f"{tokens:,.0f} tokens".replace(",", " ")] if tokens else []
        of += [quantity(size, "B")] if size else []
        parts.append(
            (f"{_percent(usage)} used" + (f" of {', '.join(of)}" if of else ""), "bad" if usage >= 0.95 else "")
        )
    elif held is not None:
        parts.append((f"{quantity(held, 'B')} held" + (f" of {quantity(size, 'B')}" if size else ""), ""))
    # None found of what was looked up is the news itself; where nothing was looked up the signal is missing.
    if (hits := reader.value("prefix_hit_rate")) is not None:
        parts.append((f"prefix hits {_percent(hits)}", ""))
    count = reader.value("preemptions")
    if count:
        parts.append((f"{count:.0f} preempted and recomputed", "bad"))
    return reader.line("kv", "KV pool", parts)


def _latency(reader: _Reader, name: str, promise: float | None) -> Vital | None:
    """Percentiles of one latency; the 95th against what was promised."""
    parts: list[tuple[str, Tone]] = []
    for at in QUANTILES:
        found = reader.reading(f"{name}_{at}_s")
        if found is not None:
            missed = promise is not None and at == "p95" and found.value > promise
            parts.append((f"{at} {seconds(found)}", "bad" if missed else ""))
    if promise is not None:
        p95 = reader.value(f"{name}_p95_s")
        verdict = "not to be told" if p95 is None else "held" if p95 <= promise else "missed"
        parts.append((f"promised p95 {quantity(promise, 's')}: {verdict}", "bad" if verdict == "missed" else ""))
    return reader.line(name, _LATENCIES[name], parts)


def seconds(found: Reading) -> str:
    """A time; of one that lies somewhere in a histogram's first bucket nothing is known but the bucket's end."""
    first = re.search(r"bucket 0 to (\S+)", found.source)
    return f"≤ {quantity(float(first[1]), 's')}" if first else quantity(found.value, "s")


def _count(value: float) -> str:
    return f"{value:.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %" if share >= 0.0995 or share == 0 else f"{share * 100:.1f} %"
