"""The shape of a model's KV: layers, heads, tokens to a block, and what a page of each form weighs."""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm

FLOAT_BYTES = 4
DTYPES = {"float32": 4, "bfloat16": 2}
"""Types of full precision and their bytes; bfloat16 on a device only."""
ALIGN = 64


@dataclass(frozen=True)
class KVGeometry:
    """A block is `block_tokens` tokens for all layers and kv heads; a page is one (layer, block, kv head).

    Selection keeps `rep_rows` representatives (2: lower and upper bound, 1: mean) for each `rep_tokens` tokens;
    `rank` is the number of components of a low-rank page, `entries` what a thinned one keeps of its tokens.
    Raises ValueError naming the field that cannot be.
    """

    layers: int
    kv_heads: int
    q_heads: int
    head_dim: int
    block_tokens: int = 32
    rep_tokens: int = 16
    rep_rows: int = 2
    rank: int = 16
    dtype: str = "float32"
    entries: int = 8

    def __post_init__(self) -> None:
        for name in ("layers", "kv_heads", "q_heads", "head_dim", "block_tokens", "rep_tokens", "rank", "entries"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"geometry: {name} is {value!r}, expected a whole number of at least 1")
        if self.q_heads % self.kv_heads:
            raise ValueError(f"geometry: q_heads {self.q_heads} is not a multiple of kv_heads {self.kv_heads}")
        if self.head_dim % 16:
            raise ValueError(f"geometry: head_dim {self.head_dim} is not a multiple of 16 (rows must stay aligned)")
        if self.block_tokens % self.rep_tokens:
            raise ValueError(
                f"geometry: block_tokens {self.block_tokens} is not a multiple of rep_tokens {self.rep_tokens}"
            )
        if self.rep_rows not in (1, 2):
            raise ValueError(f"geometry: rep_rows is {self.rep_rows}, expected 1 (mean) or 2 (bounds)")
        if self.block_tokens % 8:
            raise ValueError(f"geometry: block_tokens {self.block_tokens} is not a multiple of 8")
        if self.dtype not in DTYPES:
            raise ValueError(f"geometry: dtype {self.dtype!r} is not supported, expected {' or '.join(DTYPES)}")

    @property
    def group(self) -> int:
        """Query heads that share one kv head."""
        return self.q_heads // self.kv_heads

    @property
    def subs_per_block(self) -> int:
        return self.block_tokens // self.rep_tokens

    @property
    def components(self) -> int:
        """Components of a low-rank page: `rank`, as far as a page has as many dimensions."""
        return min(self.rank, self.block_tokens, self.head_dim)

    @property
    def pages_per_block(self) -> int:
        return self.layers * self.kv_heads

    @property
    def hot_page_bytes(self) -> int:
        """K [block_tokens, head_dim] then V, at full precision."""
        return 2 * self.block_tokens * self.head_dim * DTYPES[self.dtype]

    @property
    def cold_page_bytes(self) -> int:
        """K int8, V int8, one float32 scale per K row, one per V row; padded so that rows stay whole and aligned."""
        return self.padded(2 * self.block_tokens * (self.head_dim + FLOAT_BYTES))

    def padded(self, size: int) -> int:
        """The least page of at least `size` bytes at whose multiples rows of int8 begin."""
        unit = lcm(ALIGN, self.head_dim)
        return -(-size // unit) * unit

    @property
    def representative_bytes(self) -> int:
        """Per (layer, block, kv head): int8 rows and a float32 scale for each sub-block."""
        return self.subs_per_block * (self.rep_rows * self.head_dim + FLOAT_BYTES)

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_tokens)
