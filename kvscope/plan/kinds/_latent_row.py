"""The row that every attention kind of DeepSeek V4 stores: one shared head whose key is its value, and the window.

Below 16 bits a row keeps its RoPE part at 16 bits and carries one scale byte per 64 other numbers, padded to 8:
448 + 128 + 8 = 584 bytes. Every layer keeps the newest ``sliding_window`` rows whole, compressed or not.
"""

from __future__ import annotations

from kvscope.plan.config import ModelConfig
from kvscope.plan.dtypes import WIDE, Widths

SCALED_NUMBERS, SCALE_ALIGN, ROPE_BYTES = 64, 8, 2
STATE_BYTES = 4
"""A compressor collects in 32 bits."""


def row_bytes(config: ModelConfig, widths: Widths) -> int:
    """Bytes of one stored row."""
    if widths.kv_bits >= WIDE:
        return widths.kv(config.head_dim)
    rope = config.whole("qk_rope_head_dim")
    plain = config.head_dim - rope
    scales = -(-plain // (SCALED_NUMBERS * SCALE_ALIGN)) * SCALE_ALIGN
    return widths.kv(plain) + scales + ROPE_BYTES * rope


def window_bytes(config: ModelConfig, widths: Widths) -> int:
    """Bytes of a layer's window; engines reserve it whole."""
    return config.whole("sliding_window") * row_bytes(config, widths)


def state_bytes(rows: int, numbers: int) -> int:
    """Bytes in which a compressor collects ``rows`` tokens: a value and a weight for each number."""
    return rows * numbers * 2 * STATE_BYTES


def ratio(config: ModelConfig, layer: int, default: int) -> int:
    """Tokens per stored row of a layer; ``default`` where the config names kinds without ratios."""
    return int(config.per_layer("compress_ratios")[layer]) if config.has("compress_ratios") else default
