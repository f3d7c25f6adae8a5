"""How a stored number is kept: the KV dtypes engines name, each with its bytes, blocks and scales.

``forms.get("q8_0").bytes_of(128)`` is what one vector of 128 numbers takes. Sources: the block layouts of ggml
(``ggml-common.h``), vLLM 0.33.0 (``v1/kv_cache_interface.py``, ``model_executor/layers/quantization/turboquant``),
SGLang 0.5.23 (``srt/mem_cache/pool_configurator.py``), LMDeploy (``quant_policy`` 4 and 8), the OCP MX and
NVFP4 formats.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvscope.errors import UsageError, nearest

WIDE_BYTES = 2
"""From this many bytes a number is kept as computed; below it latent rows keep their RoPE part wide."""


@dataclass(frozen=True, slots=True)
class Form:
    """``block`` numbers take ``block_bytes``, scales included; ``vector_bytes`` come on top of each head's vector."""

    name: str
    block: int
    block_bytes: int
    vector_bytes: int = 0
    says: str = ""

    @property
    def wide(self) -> bool:
        """Whether numbers are kept as computed (16 bits or more)."""
        return self.block_bytes >= WIDE_BYTES * self.block and self.block == 1

    def bytes_of(self, numbers: int, vectors: int = 1) -> int:
        """Bytes of ``vectors`` vectors of ``numbers`` each; a begun block counts whole."""
        return vectors * (-(-numbers // self.block) * self.block_bytes + self.vector_bytes)


def _forms() -> dict[str, Form]:
    found = (
        Form("fp32", 1, 4, says="32 bits"),
        Form("fp16", 1, 2, says="16 bits"),
        Form("bf16", 1, 2, says="16 bits"),
        Form("fp8_e4m3", 1, 1, says="8 bits, one scale a tensor"),
        Form("fp8_e5m2", 1, 1, says="8 bits, no scale"),
        Form("int8", 1, 1, says="8 bits, one scale a tensor"),
        Form("int4", 2, 1, says="4 bits, one scale a tensor"),
        Form("fp8_per_token_head", 1, 1, 4, "8 bits, a 32-bit scale a token and head"),
        Form("int8_per_token_head", 1, 1, 4, "8 bits, a 32-bit scale a token and head"),
        Form("int4_per_token_head", 2, 1, 4, "4 bits, 4 bytes of scale and zero point a token and head"),
        Form("nvfp4", 16, 9, says="4 bits, an 8-bit scale per 16"),
        Form("mxfp4", 32, 17, says="4 bits, an 8-bit scale per 32"),
        Form("mxfp8", 32, 33, says="8 bits, an 8-bit scale per 32"),
        Form("q8_0", 32, 34, says="8 bits, a 16-bit scale per 32"),
        Form("q5_1", 32, 24, says="5 bits, 16-bit scale and minimum per 32"),
        Form("q5_0", 32, 22, says="5 bits, a 16-bit scale per 32"),
        Form("q4_1", 32, 20, says="4 bits, 16-bit scale and minimum per 32"),
        Form("q4_0", 32, 18, says="4 bits, a 16-bit scale per 32"),
        Form("iq4_nl", 32, 18, says="4 bits, a 16-bit scale per 32"),
    )
    return {one.name: one for one in found}


FORMS = _forms()
ALIASES = {
    "float32": "fp32",
    "f32": "fp32",
    "float": "fp32",
    "float16": "fp16",
    "f16": "fp16",
    "half": "fp16",
    "bfloat16": "bf16",
    "fp8": "fp8_e4m3",
    "fp8_e4m3fn": "fp8_e4m3",
    "float8_e4m3fn": "fp8_e4m3",
    "float8_e4m3": "fp8_e4m3",
    "float8_e5m2": "fp8_e5m2",
    "fp8_inc": "fp8_e4m3",
    "fp4_e2m1": "nvfp4",
    "float4_e2m1fn_x2": "nvfp4",
}
"""Other spellings of the same form."""


def get(name: str, option: str = "--kv-dtype") -> Form:
    """Return a form by any of its names; UsageError with the nearest one."""
    found = FORMS.get(ALIASES.get(name.lower(), name.lower()))
    if found is None:
        raise UsageError(f"{option} {name!r}{nearest(name.lower(), [*FORMS, *ALIASES])}; known: {', '.join(FORMS)}")
    return found


@dataclass(frozen=True, slots=True)
class KvForms:
    """The forms of keys, of values, and of a sparse index's keys."""

    key: Form
    value: Form
    index: Form

    @classmethod
    def named(cls, kv: str, index: str | None = None) -> KvForms:
        """Look up ``bf16``, or ``K:V`` apart as in ``q8_0:q4_0``; the index is fp8 where none is said. UsageError."""
        key, _, value = kv.partition(":")
        keys = get(key)
        return cls(keys, get(value) if value else keys, get(index or "fp8_e4m3", "--index-dtype"))

    @property
    def name(self) -> str:
        return self.key.name if self.key == self.value else f"{self.key.name}:{self.value.name}"


def index_row_bytes(form: Form, numbers: int) -> int:
    """Bytes of one key of a sparse index: below 16 bits it carries a 4-byte scale (vLLM, SGLang: 128 + 4)."""
    if form.wide:
        return form.bytes_of(numbers)
    return -(-numbers * form.block_bytes // form.block) + 4 if form.block <= 2 else -(-numbers // 2) + 4
