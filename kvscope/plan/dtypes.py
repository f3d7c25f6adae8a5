"""How wide a stored number is."""

from __future__ import annotations

from dataclasses import dataclass

from kvscope.errors import UsageError, nearest

BITS = {"fp32": 32, "fp16": 16, "bf16": 16, "fp8": 8, "int8": 8, "int4": 4}
INDEX_BITS = {"fp32": 32, "fp16": 16, "bf16": 16, "fp8": 8, "int8": 8, "mxfp4": 4, "int4": 4}
WIDE = 16
"""From this many bits on an entry is kept as computed; below it a row carries scales and keeps its RoPE part wide."""


@dataclass(frozen=True, slots=True)
class Widths:
    """Bits of one number of the KV entries, and of one number of the sparse index where a model has one."""

    kv_bits: int
    index_bits: int

    @classmethod
    def named(cls, kv: str, index: str | None = None) -> Widths:
        """Look up dtypes by name; without ``index`` the index is as wide as the KV. UsageError."""
        return cls(_look_up("--kv-dtype", kv, BITS), _look_up("--index-dtype", index or kv, INDEX_BITS))

    def kv(self, numbers: int) -> int:
        """Bytes of that many numbers of KV, without scales."""
        return -(-numbers * self.kv_bits // 8)

    def index_row(self, numbers: int) -> int:
        """Bytes of one key of the sparse index: below 16 bits it carries 4 bytes of scales (as vLLM stores it)."""
        return -(-numbers * self.index_bits // 8) + (4 if self.index_bits < WIDE else 0)


def _look_up(option: str, name: str, known: dict[str, int]) -> int:
    if name not in known:
        raise UsageError(f"{option} {name!r}{nearest(name, known)}; expected one of {', '.join(known)}")
    return known[name]
