"""Requests that somebody saw: trace files with one request a line, as JSON or CSV, under whatever names they use.

Read are the public traces of Mooncake, Azure and BurstGPT, and logs with an OpenAI ``usage``.
Of a request only when it came and how long it was is taken; prompt text is neither needed nor kept.
"""

from __future__ import annotations

import csv
import datetime
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvscope.errors import UsageError

INPUT = ("input_length", "prompt_tokens", "tokens_in", "ContextTokens", "Request tokens", "input_tokens", "prompt_len")
OUTPUT = (
    "output_length",
    "completion_tokens",
    "tokens_out",
    "GeneratedTokens",
    "Response tokens",
    "output_tokens",
    "output_len",
)
ARRIVAL = {"timestamp": 1e-3, "arrival_s": 1.0, "arrival": 1.0, "Timestamp": 1.0, "TIMESTAMP": 1.0, "t": 1.0}
"""Names of the arrival time and the seconds its number counts in (Mooncake writes milliseconds)."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One request: seconds after the first one, tokens in and out; ``arrival_s`` None when nobody wrote it down."""

    tokens_in: int
    tokens_out: int
    arrival_s: float | None = None


def read_trace(path: Path) -> list[Seen]:
    """Read every request of a trace, arrivals counted from the first; UsageError names what no line had."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            head = file.readline()
            file.seek(0)
            rows = list(_json_rows(file) if head.lstrip().startswith("{") else csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path}: {error}; expected a trace of one request a line, JSON or CSV") from None
    found = [one for one in map(_seen, rows) if one is not None]
    if not found:
        raise UsageError(f"{path}: no line has a prompt length; expected one of {', '.join(INPUT)}")
    return _from_zero(found)


def _json_rows(lines: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            usage = row.get("usage")
            yield {**row, **usage} if isinstance(usage, dict) else row


def _seen(row: Mapping[str, Any]) -> Seen | None:
    tokens_in = _whole(row, INPUT)
    if tokens_in is None or tokens_in < 1:
        return None
    return Seen(tokens_in, _whole(row, OUTPUT) or 0, _arrival(row))


def _whole(row: Mapping[str, Any], names: Iterable[str]) -> int | None:
    for name in names:
        try:
            return int(float(row[name]))
        except (KeyError, TypeError, ValueError):
            continue
    return None


def _arrival(row: Mapping[str, Any]) -> float | None:
    for name, scale in ARRIVAL.items():
        value = row.get(name)
        if value is None:
            continue
        try:
            return float(value) * scale
        except (TypeError, ValueError):
            pass
        try:
            return datetime.datetime.fromisoformat(str(value)[:26]).timestamp()
        except ValueError:
            continue
    return None


def _from_zero(found: list[Seen]) -> list[Seen]:
    known = [one.arrival_s for one in found if one.arrival_s is not None]
    if len(known) < len(found):
        return [Seen(one.tokens_in, one.tokens_out) for one in found]
    first = min(known)
    moved = [Seen(one.tokens_in, one.tokens_out, (one.arrival_s or 0.0) - first) for one in found]
    return sorted(moved, key=lambda one: one.arrival_s or 0.0)
