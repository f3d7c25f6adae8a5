"""Rows of one layer, and what a row of plain heads weighs."""

from __future__ import annotations

from dataclasses import dataclass

from kvscope.plan.forms import KvForms
from kvscope.plan.layer import Layer


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows that a request keeps and that one decode step reads.

    ``growing`` come with the context, ``fixed`` are kept from the first token on (a window that is reserved whole);
    ``index``: keys of a sparse index, kept, and read all of them; ``read``: rows read.
    """

    growing: int = 0
    fixed: int = 0
    read: int = 0
    index: int = 0


def row_bytes(layer: Layer, forms: KvForms, tp: int) -> int:
    """Keys and values of the heads that one rank holds."""
    heads = layer.heads_on_rank(tp)
    return forms.key.bytes_of(layer.key_dim, heads) + forms.value.bytes_of(layer.value_dim, heads)
