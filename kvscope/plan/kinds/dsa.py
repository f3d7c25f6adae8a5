"""DeepSeek sparse attention (V3.2): latent rows of MLA, and beside each a key of the index that chooses what is read.

Nothing is dropped: the index makes reads sparse, not memory smaller. In 8 bits a row is stored as its latent part with
one 4-byte scale per 128 numbers and its RoPE key at 16 bits: 512 + 16 + 128 = 656 bytes (vLLM ``fp8_ds_mla``; SGLang
the same).
"""

from __future__ import annotations

from kvscope.plan.forms import KvForms
from kvscope.plan.kinds._base import Rows
from kvscope.plan.layer import Layer

SAYS = "every token keeps a latent row and an index key; reads are sparse, memory is not"
SCALED_NUMBERS, SCALE_BYTES, ROPE_BYTES = 128, 4, 2


def rows(layer: Layer, context: int) -> Rows:
    """Grow by a row and, where the layer has an index of its own, a key a token; ``top_k`` rows are read."""
    read = min(context, layer.top_k) if layer.top_k else context
    return Rows(growing=context, read=read, index=context if layer.index else 0)


def row_bytes(layer: Layer, forms: KvForms, tp: int) -> int:
    """One latent row, as the sparse kernels want it."""
    if forms.key.wide:
        return forms.key.bytes_of(layer.latent + layer.rope)
    scales = -(-layer.latent // SCALED_NUMBERS) * SCALE_BYTES
    return forms.key.bytes_of(layer.latent) + scales + ROPE_BYTES * layer.rope
