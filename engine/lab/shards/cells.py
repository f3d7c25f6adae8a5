"""What is measured in one go: a partition, a batch, and whether time or only balance is of interest."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine.lab.shards.shape import Shape


@dataclass(frozen=True)
class Cell:
    """`pages` False makes no keys and values but mean keys, for the balance of selection. `seconds`: at least so long.
    `graph` False times a GPU's steps launch by launch. `check` also computes everything on one rank and says how far
    the results are from that.

    Raises TypeError for an unknown name, ValueError for what a shape cannot be.
    """

    partition: str
    requests: int
    context_tokens: int
    keys: str = "drift"
    layers: int = 4
    kv_heads: int = 8
    group: int = 4
    head_dim: int = 128
    block_tokens: int = 64
    share: float = 0.25
    chosen: int = 0
    budgets: str = "even"
    pages: bool = True
    steps: int = 12
    seconds: float = 0.0
    seed: int = 0
    check: bool = False
    graph: bool = True

    @property
    def shape(self) -> Shape:
        if self.context_tokens % self.block_tokens:
            raise ValueError(f"context of {self.context_tokens} tokens, expected whole blocks of {self.block_tokens}")
        return Shape(
            self.layers, self.requests, self.kv_heads, self.group, self.head_dim,
            self.context_tokens // self.block_tokens, self.block_tokens, self.share, self.chosen, self.budgets,
        )  # fmt: skip

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def read_cells(path: Path) -> list[Cell]:
    """The cells of a JSON file, a list of objects. ValueError or TypeError where it is none."""
    return [Cell(**one) for one in json.loads(path.read_text(encoding="utf-8"))]
