"""Full attention over kept heads: MHA, GQA and MQA alike; every token keeps its keys and its values."""

from __future__ import annotations

from kvscope.plan.kinds._base import Rows
from kvscope.plan.layer import Layer

SAYS = "every token keeps keys and values of every KV head"


def rows(layer: Layer, context: int) -> Rows:
    """Grow by a row a token; all are read, or the ``top_k`` that an index chooses."""
    read = min(context, layer.top_k) if layer.top_k else context
    return Rows(growing=context, read=read, index=context if layer.index else 0)
