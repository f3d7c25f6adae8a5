"""Promises about latency: ``ttft=1s,tpot=50ms``, each held against the 95th percentile."""

from __future__ import annotations

import re

from kvscope.errors import UsageError, nearest

OF = ("ttft", "tpot", "itl", "e2e")
_UNITS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}

Slo = dict[str, float]
"""Latency → seconds that its 95th percentile may take."""


def parse(text: str) -> Slo:
    """Return what ``--slo`` promises; UsageError says which part is wrong and what was expected."""
    found: Slo = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = part.partition("=")
        name = name.strip().lower()
        if name not in OF:
            raise UsageError(f"--slo: no latency {name!r}{nearest(name, OF)}; expected one of {', '.join(OF)}")
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(us|µs|ms|s|min)\s*", value)
        if match is None or float(match[1]) <= 0:
            raise UsageError(f"--slo: {part!r}; expected {name}=TIME with a unit, as {name}=50ms")
        found[name] = float(match[1]) * _UNITS[match[2]]
    return found
