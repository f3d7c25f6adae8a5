"""Amounts as people type them: 80GB, 24GiB, 32K."""

from __future__ import annotations

import re

from kvscope.errors import UsageError
from probes.border import EXACT, shown

_BYTES = {"": 1, "B": 1} | {
    f"{prefix}{suffix}": base**power
    for power, prefix in enumerate("KMGT", 1)
    for suffix, base in (("", 1000), ("B", 1000), ("iB", 1024), ("i", 1024))
}
_TOKENS = {"": 1, "K": 1 << 10, "M": 1 << 20}


def byte_count(text: str, option: str) -> int:
    """Return bytes: a number with an optional suffix, decimal (GB) or binary (GiB); UsageError."""
    return _parse(text, option, _BYTES, "bytes, e.g. 80000000000, 80GB or 80GiB")


def token_count(text: str, option: str) -> int:
    """Return tokens: a whole number, K and M being 1024 and 1024 × 1024; UsageError."""
    return _parse(text, option, _TOKENS, "a whole number of tokens, e.g. 32768 or 32K")


def _parse(text: str, option: str, scales: dict[str, int], expected: str) -> int:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?(?:[eE]\d+)?)\s*([A-Za-z]*)\s*", text)
    scale = scales.get(match[2], scales.get(match[2].upper())) if match else None
    amount = float(match[1]) * scale if match is not None and scale is not None else 0.0
    if not 1 <= amount <= EXACT:
        raise UsageError(f"{option} {shown(text)}: expected {expected}")
    return round(amount)
