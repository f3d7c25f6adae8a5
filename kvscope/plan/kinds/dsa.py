"""DeepSeek sparse attention (V3.2): latent rows of MLA, and beside each a key of the index that chooses what is read.

Nothing is dropped: the index makes reads sparse, not memory smaller. In 8 bits a row is stored as its latent part with
one 4-byte scale per 128 numbers and its RoPE key at 16 bits: 512 + 16 + 128 = 656 bytes.
"""

from __future__ import annotations

from kvscope.plan.config import ModelConfig
from kvscope.plan.dtypes import WIDE, Widths
from kvscope.plan.kinds import mla
from kvscope.plan.kinds._base import Held

SAYS = "every token keeps a latent row and an index key; reads are sparse, memory is not"
SCALED_NUMBERS, SCALE_BYTES, ROPE_BYTES = 128, 4, 2


def row_bytes(config: ModelConfig, widths: Widths) -> int:
    """Bytes of one stored latent row."""
    if widths.kv_bits >= WIDE:
        return widths.kv(mla.numbers_per_token(config))
    latent = config.whole("kv_lora_rank")
    scales = -(-latent // SCALED_NUMBERS) * SCALE_BYTES
    return widths.kv(latent) + scales + ROPE_BYTES * config.whole("qk_rope_head_dim")


def held(config: ModelConfig, layer: int, context: int, widths: Widths) -> Held:
    """Grow by one row and, where the layer has an index of its own, one index key a token."""
    own = not config.has("indexer_types") or config.per_layer("indexer_types")[layer] != "shared"
    index = widths.index_row(config.whole("index_head_dim")) if own else 0
    return Held(context * (row_bytes(config, widths) + index))
