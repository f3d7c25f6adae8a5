"""The row that every attention kind of DeepSeek V4 stores: one shared head whose key is its value, and the window.

Below 16 bits a row keeps its RoPE part at 16 bits and carries one scale byte per 64 other numbers, padded to 8:
448 + 128 + 8 = 584 bytes. Every layer keeps the newest ``window`` rows whole, compressed or not.
"""

from __future__ import annotations

from kvscope.plan.forms import KvForms
from kvscope.plan.layer import Layer

SCALED_NUMBERS, SCALE_ALIGN, ROPE_BYTES = 64, 8, 2


def row_bytes(layer: Layer, forms: KvForms, tp: int) -> int:
    """Bytes of one stored row; whole on every rank."""
    if forms.key.wide:
        return forms.key.bytes_of(layer.key_dim)
    plain = layer.key_dim - layer.rope
    scales = -(-plain // (SCALED_NUMBERS * SCALE_ALIGN)) * SCALE_ALIGN
    return forms.key.bytes_of(plain) + scales + ROPE_BYTES * layer.rope
