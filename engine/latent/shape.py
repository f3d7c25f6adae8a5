"""What a layer of latent attention keeps and reads."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

INDEX_SCALE_BYTES = 4


@dataclass(frozen=True)
class LatentShape:
    """A row is ``latent`` numbers, key and value in one, then ``rope`` numbers of the key alone, in bfloat16.

    ``ratio`` tokens share a row. ``top_k`` rows are chosen by ``index_heads`` queries over keys of ``index_dim``
    eight-bit floats and one float32 scale; 0 reads all. The last ``window`` tokens are read from rows of their own.
    Raises ValueError naming the field that cannot be.
    """

    heads: int
    latent: int = 512
    rope: int = 64
    page_tokens: int = 64
    top_k: int = 0
    index_heads: int = 0
    index_dim: int = 0
    ratio: int = 1
    window: int = 0

    def __post_init__(self) -> None:
        for name in (
            "latent",
            "page_tokens",
            *(("rope",) if self.rope else ()),
            *(("index_dim",) if self.top_k else ()),
        ):
            value = getattr(self, name)
            if value < 16 or value & (value - 1):
                raise ValueError(f"latent shape: {name} is {value}, expected a power of two of at least 16")
        if self.top_k and self.index_dim < 32:
            raise ValueError(f"latent shape: index_dim is {self.index_dim}, expected at least 32: what a product takes")
        if self.heads < 1 or self.ratio < 1 or min(self.window, self.top_k, self.rope) < 0:
            raise ValueError("latent shape: expected heads and ratio of at least 1, nothing below 0")
        if self.top_k and self.index_heads < 1:
            raise ValueError(f"latent shape: top_k is {self.top_k} and index_heads {self.index_heads}, expected some")

    @property
    def width(self) -> int:
        return self.latent + self.rope

    @property
    def row_bytes(self) -> int:
        return 2 * self.width

    @property
    def index_bytes(self) -> int:
        """Of the key that a row is chosen by; 0 where all rows are read."""
        return self.index_dim + INDEX_SCALE_BYTES if self.top_k else 0

    @property
    def page_bytes(self) -> int:
        return self.page_tokens * (self.row_bytes + self.index_bytes)

    def rows(self, context: int) -> int:
        """Rows that a context has, those of the window apart: only a whole group of tokens has one."""
        return context // self.ratio

    def own_rows(self, context: int) -> int:
        """The last tokens' own rows that are read beside them."""
        return min(context, self.window)

    def rows_read(self, context: int) -> int:
        rows = self.rows(context)
        return (min(rows, self.top_k) if self.top_k else rows) + self.own_rows(context)

    def bytes_read(self, context: int) -> int:
        """What one request's step must read: index keys of all rows where there are any, and the rows read."""
        return self.rows(context) * self.index_bytes + self.rows_read(context) * self.row_bytes


SHAPES = {
    "mla": LatentShape(16),
    "mla-64": LatentShape(64),
    "mla-128": LatentShape(128),
    "dsa": LatentShape(16, top_k=2048, index_heads=64, index_dim=128),
    "csa": LatentShape(64, rope=0, top_k=512, index_heads=64, index_dim=128, ratio=4, window=128),
    "hca": LatentShape(64, rope=0, ratio=128, window=128),
}
"""By name: DeepSeek V3's rows for 16, 64 and all 128 of its query heads (the rows are on every rank of a split by
heads: eight ranks have 16 each), V3.2's choice of 2048 of them (its index has 64 heads on every rank), and the two
kinds of DeepSeek V4's compressed rows, whose rope lies within the 512."""


def named(name: str) -> LatentShape:
    """Raises ValueError with the nearest name there is."""
    if name not in SHAPES:
        near = get_close_matches(name, SHAPES, n=1)
        hint = f", did you mean {near[0]!r}" if near else ""
        raise ValueError(f"no latent shape {name!r}, there are {', '.join(SHAPES)}{hint}")
    return SHAPES[name]
