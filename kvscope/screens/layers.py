"""Every layer: its KV bytes over time and now, entries of both forms, what decode read."""

from __future__ import annotations

from kvscope.screens import Screen
from kvscope.screens.reader import Reader
from kvscope.signals.reading import Missing
from kvscope.view import Table

_NO_LAYERS = Missing("no source reports kv.bytes_per_layer", "per-layer probes in the engine")
_COLUMNS = {
    "KV": "kv_layer_bytes",
    "hot entries": "hot_entries",
    "cold entries": "cold_entries",
    "share read": "layer_read_share",
    "hot reads": "layer_hot_share",
}


def layers(reader: Reader) -> Table:
    """One row a layer: bytes, entries of both forms, the share read and the share hot."""
    return reader.cells("layer", "layer", _COLUMNS, _NO_LAYERS)


SCREEN = Screen(
    title="Layers",
    order=60,
    needs=("kv.bytes_per_layer",),
    help="Every layer: its KV bytes over time and now, entries of both forms, what decode read.",
    facts=(
        "kv_resident_bytes",
        "cold_entries_share",
        "hot_access_share",
        "layer_hit_rate_spread",
    ),
    table=("Layer by layer", layers),
    layers=True,
)
