"""Bytes of stored vectors: the formats of ``kvscope.kv_types``, counted a vector at a time as engines lay them out.

``get("q8_0").key.bytes_of(128)`` is what one key of 128 numbers takes, scales included.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvscope import kv_types
from kvscope.errors import UsageError, nearest

WIDE_BITS = 16
"""From this many bits a number is kept as computed; below it latent rows keep their RoPE part wide."""
SCALE_BYTES = 4
"""Of one key of a sparse index below 16 bits (vLLM, SGLang: 128 numbers and 4 bytes)."""
PLAIN_NAMES = {"fp8": "fp8_e4m3"}


@dataclass(frozen=True, slots=True)
class Form:
    """Keys or values in one format: ``bits`` a number, ``scale_bits`` for every ``group`` numbers (0: a vector)."""

    name: str
    bits: float
    scale_bits: float = 0.0
    group: int = 0

    @property
    def wide(self) -> bool:
        """Whether numbers are kept as computed (16 bits or more)."""
        return self.bits >= WIDE_BITS

    def bytes_of(self, numbers: int, vectors: int = 1) -> int:
        """Bytes of ``vectors`` vectors of ``numbers`` each; a begun byte and a begun group count whole."""
        if not numbers:
            return 0
        held = -(-numbers // self.group) * self.group if self.group > 16 else numbers
        scales = -(-numbers // self.group) * self.scale_bits if self.group else self.scale_bits
        return vectors * (int(-(-held * self.bits // 8)) + int(-(-scales // 8)))


@dataclass(frozen=True, slots=True)
class KvForms:
    """The forms of keys, of values, and of a sparse index's keys."""

    key: Form
    value: Form
    index: Form
    name: str

    @classmethod
    def named(cls, kv: str, index: str | None = None) -> KvForms:
        """Look up ``bf16``, or ``K:V`` apart as in ``q8_0:q4_0``; the index is fp8 where none is said. UsageError."""
        first, _, second = kv.partition(":")
        key, value = get(first)[0], get(second or first)[1]
        name = key.name if key.name == value.name else f"{key.name}:{value.name}"
        return cls(key, value, get(index or "fp8", "--index-dtype")[0], name)


def get(name: str, option: str = "--kv-dtype") -> tuple[Form, Form]:
    """Return keys and values of a format by any of its names; UsageError with the nearest one."""
    found = kv_types.find(name)
    if found is None or "ds_mla" in found.name:
        raise UsageError(
            f"{option} {name!r}{nearest(name.lower(), kv_types.names())}; known: {', '.join(kv_types.names())}"
        )
    said = PLAIN_NAMES.get(found.name, found.name)
    return tuple(Form(said, half.bits, half.scale_bits, half.group) for half in (found.key, found.value))  # type: ignore[return-value]


def index_row_bytes(form: Form, numbers: int) -> int:
    """Bytes of one key of a sparse index."""
    return form.bytes_of(numbers) if form.wide else int(-(-numbers * form.bits // 8)) + SCALE_BYTES
