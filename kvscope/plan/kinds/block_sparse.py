"""Plain heads of which whole blocks are read, chosen by an index (MiniMax M3): nothing is dropped.

The index key is one vector a token, kept in the format of the keys.
"""

from __future__ import annotations

from kvscope.plan.forms import KvForms
from kvscope.plan.kinds import full
from kvscope.plan.layer import Layer

SAYS = "every token keeps keys and values and an index key; the chosen blocks are read"
rows = full.rows


def index_bytes(layer: Layer, forms: KvForms) -> int:
    """Bytes of one index key: no scales of its own."""
    return forms.key.bytes_of(layer.index)
