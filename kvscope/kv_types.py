"""How wide one stored number of KV is, under the names engines have for it: bits, and the scales beside them.

Sources: vLLM 0.32.0 ``config/cache.py`` and ``quantization/turboquant/config.py``, SGLang 0.5.23 ``kv_cache_hook.py``,
llama.cpp ``ggml-common.h`` (a block of 32 numbers and its scale), LMDeploy 1263d5c ``quant_policy``, TensorRT-LLM
``KvCacheConfig.dtype``. A name that is not here is unknown: nobody may count it as 16 bits.
"""

from __future__ import annotations

from dataclasses import dataclass

HEAD_DIM = 128
"""Numbers of a head where nobody says: only formats that carry scales per head depend on it."""


@dataclass(frozen=True, slots=True)
class Half:
    """Keys or values: ``bits`` of a number, ``scale_bits`` more for every ``group`` numbers (0: for each head)."""

    bits: float
    scale_bits: float = 0.0
    group: int = 0

    def stored(self, head_dim: int) -> float:
        """Bits of one number with its part of the scales."""
        return self.bits + (self.scale_bits / (self.group or head_dim) if self.scale_bits else 0.0)


@dataclass(frozen=True, slots=True)
class KvType:
    """One format of KV; ``name`` is the spelling that reports use."""

    name: str
    key: Half
    value: Half

    def bits(self, head_dim: int = HEAD_DIM) -> float:
        """Bits of one stored number, the mean of keys and values, scales included."""
        return (self.key.stored(head_dim) + self.value.stored(head_dim)) / 2


def _even(name: str, bits: float, scale_bits: float = 0.0, group: int = 0) -> KvType:
    half = Half(bits, scale_bits, group)
    return KvType(name, half, half)


# A latent row of FlashMLA's: 512 numbers of 8 (4) bits with scales, 64 of RoPE at 16: 656 (400) bytes for 576 numbers.
_LATENT_8, _LATENT_4 = 656 * 8 / 576, 400 * 8 / 576

_TYPES = (
    _even("fp32", 32),
    _even("fp16", 16),
    _even("bf16", 16),
    _even("fp8", 8),
    _even("fp8_e4m3", 8),
    _even("fp8_e5m2", 8),
    _even("int8", 8),
    _even("int4", 4),
    _even("fp8_per_token_head", 8, 32),
    _even("int8_per_token_head", 8, 32),
    _even("int4_per_token_head", 4, 32),
    _even("fp8_ds_mla", _LATENT_8),
    _even("nvfp4_ds_mla", _LATENT_4),
    _even("nvfp4", 4, 8, 16),
    _even("fp4_mx_block16", 4, 8, 16),
    _even("mxfp4", 4, 8, 32),
    _even("mxfp8", 8, 8, 32),
    _even("ultraquant_4bit", 4, 8, 32),
    KvType("turboquant_k8v4", Half(8), Half(4, 32)),
    KvType("turboquant_4bit_nc", Half(4, 16), Half(4, 32)),
    KvType("turboquant_k3v4_nc", Half(3, 16), Half(4, 32)),
    KvType("turboquant_3bit_nc", Half(3, 16), Half(3, 32)),
    _even("q8_0", 8, 16, 32),
    _even("q6_0", 6, 16, 32),
    _even("q5_1", 5, 32, 32),
    _even("q5_0", 5, 16, 32),
    _even("q4_1", 4, 32, 32),
    _even("q4_0", 4, 16, 32),
    _even("iq4_nl", 4, 16, 32),
)

_ALIASES = {
    "float32": "fp32",
    "f32": "fp32",
    "float": "fp32",
    "float16": "fp16",
    "f16": "fp16",
    "half": "fp16",
    "bfloat16": "bf16",
    "fp8_e4m3fn": "fp8_e4m3",
    "float8_e4m3fn": "fp8_e4m3",
    "float8_e4m3fnuz": "fp8_e4m3",
    "float8_e5m2": "fp8_e5m2",
    "fp8_inc": "fp8",
    "uint8": "int8",
    "nvfp4_4over6": "nvfp4",
    "fp4_e2m1": "nvfp4",
}
_KNOWN = {one.name: one for one in _TYPES}


def names() -> tuple[str, ...]:
    """Every spelling that is known, sorted."""
    return tuple(sorted((*_KNOWN, *_ALIASES)))


def find(text: str) -> KvType | None:
    """Return the format of that name in any engine's spelling (``torch.bfloat16``, ``q8_0``, ``k=q8_0,v=q4_0``).

    None where the name is not known, ``auto`` among them: what the model's own type is has to be said elsewhere.
    """
    name = text.strip().strip("'\"").lower().removeprefix("torch.").removeprefix("datatype.")
    if name.startswith("k=") and ",v=" in name:
        key, value = name.removeprefix("k=").split(",v=", 1)
        return mixed(key, value)
    return _KNOWN.get(_ALIASES.get(name, name))


def mixed(key: str, value: str) -> KvType | None:
    """Return keys of one format with values of another; None where either is unknown."""
    first, second = find(key), find(value)
    if first is None or second is None:
        return None
    return first if first == second else KvType(f"k={first.name},v={second.name}", first.key, second.value)
