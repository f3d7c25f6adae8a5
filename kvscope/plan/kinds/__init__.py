"""What one layer keeps and reads of a request: one kind a file, found by its name.

A file has ``SAYS``, one line about the kind, and ``rows(layer, context) -> Rows``: how many stored rows a request of
that length keeps and reads. What a row weighs stands in ``_base.py``, unless the kind says otherwise.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from kvscope.discovery import module_names
from kvscope.plan.forms import KvForms, index_row_bytes
from kvscope.plan.kinds import _base
from kvscope.plan.kinds._base import Rows
from kvscope.plan.layer import Layer


def names() -> tuple[str, ...]:
    """Return the kinds there are."""
    return module_names(__path__)


def says(name: str) -> str:
    """Return what a kind keeps, in one line."""
    return str(_module(name).SAYS)


def rows(layer: Layer, context: int) -> Rows:
    """Return how many rows a request of ``context`` tokens keeps and a decode step reads."""
    found: Rows = _module(layer.kind).rows(layer, context)
    return found


def row_bytes(layer: Layer, forms: KvForms, tp: int = 1) -> int:
    """Return what one stored row takes on one of ``tp`` ranks, without an index key."""
    module = _module(layer.kind)
    weigh = getattr(module, "row_bytes", _base.row_bytes)
    return int(weigh(layer, forms, tp))


def index_bytes(layer: Layer, forms: KvForms) -> int:
    """Return what one key of the layer's sparse index takes; 0 where it has none. Whole on every rank."""
    if not layer.index:
        return 0
    weigh = getattr(_module(layer.kind), "index_bytes", None)
    return int(weigh(layer, forms)) if weigh else index_row_bytes(forms.index, layer.index)


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{name}")
