"""How GGUF stores numbers: one function a type, from stored bytes to float32, bit for bit as llama.cpp decodes them.

Block layouts: https://github.com/ggml-org/llama.cpp/blob/master/ggml/src/ggml-common.h
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Quant:
    """`block` values are stored in `bytes` bytes; `decode` takes the bytes of whole blocks."""

    name: str
    block: int
    bytes: int
    decode: Callable[[Bytes], Floats]


def _halves(columns: Bytes) -> Floats:
    """Two bytes a row, a float16 -> float32 [rows, 1]."""
    return np.ascontiguousarray(columns).view(np.float16).astype(np.float32)


def _nibbles(columns: Bytes) -> Bytes:
    """[rows, n] -> [rows, 2 n]: all low halves, then all high halves."""
    return np.concatenate((columns & 15, columns >> 4), axis=1)


def _fifth_bits(columns: Bytes) -> Bytes:
    """Four bytes a row -> [rows, 32], each value's bit moved to the place above its nibble."""
    word = np.ascontiguousarray(columns).view(np.uint32)
    return (((word >> np.arange(32, dtype=np.uint32)) & np.uint32(1)) << np.uint32(4)).astype(np.uint8)


def _f32(data: Bytes) -> Floats:
    return data.view(np.float32)


def _f16(data: Bytes) -> Floats:
    return data.view(np.float16).astype(np.float32)


def _bf16(data: Bytes) -> Floats:
    return (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def _q4_0(data: Bytes) -> Floats:
    rows = data.reshape(-1, 18)
    return (_nibbles(rows[:, 2:]).astype(np.int8) - np.int8(8)).astype(np.float32) * _halves(rows[:, :2])


def _q4_1(data: Bytes) -> Floats:
    rows = data.reshape(-1, 20)
    values = _nibbles(rows[:, 4:]).astype(np.float32)
    values *= _halves(rows[:, :2])
    values += _halves(rows[:, 2:4])
    return values


def _q5_0(data: Bytes) -> Floats:
    rows = data.reshape(-1, 22)
    values = (_nibbles(rows[:, 6:]) | _fifth_bits(rows[:, 2:6])).astype(np.int8) - np.int8(16)
    return values.astype(np.float32) * _halves(rows[:, :2])


def _q5_1(data: Bytes) -> Floats:
    rows = data.reshape(-1, 24)
    values = (_nibbles(rows[:, 8:]) | _fifth_bits(rows[:, 4:8])).astype(np.float32)
    return values * _halves(rows[:, :2]) + _halves(rows[:, 2:4])


def _q8_0(data: Bytes) -> Floats:
    rows = data.reshape(-1, 34)
    return rows[:, 2:].view(np.int8).astype(np.float32) * _halves(rows[:, :2])


def _six_bit_pairs(packed: Bytes) -> tuple[Bytes, Bytes]:
    """Twelve bytes a row -> eight scales and eight minima of six bits each, [rows, 8]."""
    low, middle, high = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate((low & 63, (high & 15) | ((low >> 2) & 48)), axis=1)
    minima = np.concatenate((middle & 63, (high >> 4) | ((middle >> 2) & 48)), axis=1)
    return scales, minima


def _q4_k(data: Bytes) -> Floats:
    rows = data.reshape(-1, 144)
    scales, minima = _six_bit_pairs(rows[:, 4:16])
    d = (_halves(rows[:, :2]) * scales.astype(np.float32))[:, :, None]
    m = (_halves(rows[:, 2:4]) * minima.astype(np.float32))[:, :, None]
    packed = rows[:, 16:].reshape(-1, 4, 1, 32)
    values = (packed >> np.array([0, 4], np.uint8).reshape(1, 1, 2, 1)) & 15
    return d * values.reshape(-1, 8, 32).astype(np.float32) - m


def _q6_k(data: Bytes) -> Floats:
    rows = data.reshape(-1, 210)
    low = rows[:, :128].reshape(-1, 2, 1, 64) >> np.array([0, 4], np.uint8).reshape(1, 1, 2, 1)
    high = rows[:, 128:192].reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1)
    values = (low & 15).reshape(-1, 8, 32) | ((high & 3) << 4).reshape(-1, 8, 32)
    signed = (values.astype(np.int8) - np.int8(32)).reshape(-1, 16, 16).astype(np.float32)
    scales = _halves(rows[:, 208:]) * rows[:, 192:208].view(np.int8).astype(np.float32)
    return scales[:, :, None] * signed


BY_CODE = {
    0: Quant("F32", 1, 4, _f32),
    1: Quant("F16", 1, 2, _f16),
    2: Quant("Q4_0", 32, 18, _q4_0),
    3: Quant("Q4_1", 32, 20, _q4_1),
    6: Quant("Q5_0", 32, 22, _q5_0),
    7: Quant("Q5_1", 32, 24, _q5_1),
    8: Quant("Q8_0", 32, 34, _q8_0),
    12: Quant("Q4_K", 256, 144, _q4_k),
    14: Quant("Q6_K", 256, 210, _q6_k),
    30: Quant("BF16", 1, 2, _bf16),
}
CODE_NAMES = {10: "Q2_K", 11: "Q3_K", 13: "Q5_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S"}
CODE_NAMES |= {20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 39: "MXFP4"}
"""Types that exist and cannot be read here, for the error that says so."""
