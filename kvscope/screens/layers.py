"""Every layer: its KV bytes over time and now, entries of both forms, what decode read."""

from __future__ import annotations

from kvscope.screens import Screen
from kvscope.screens.reader import NOW_S, Fact, Reader
from kvscope.signals.reading import Missing
from kvscope.view import Table
from probes.sample import Labels

_NO_LAYERS = Missing("no source reports kv.bytes_per_layer", "per-layer probes in the engine")
_COLUMNS = (
    ("layer", ""),
    ("KV", "B"),
    ("hot entries", "entries"),
    ("cold entries", "entries"),
    ("share read", "ratio"),
    ("hot reads", "ratio"),
)


def layers(reader: Reader) -> Table:
    """One row a layer: bytes, entries of both forms, and over the last seconds the share read and the share hot."""
    store, end = reader.store, reader.end_s
    found = {int(dict(labels).get("layer", -1)): labels for labels in store.keys("kv.bytes_per_layer")}
    if not found:
        return Table(_COLUMNS, _NO_LAYERS)

    def grew(metric: str, labels: Labels) -> float | None:
        values = store.series(metric, labels, end - NOW_S, end)[1]
        return values[-1] - values[0] if len(values) >= 2 and values[-1] >= values[0] else None

    rows = []
    for layer, labels in sorted(found.items()):
        told = ("kv.bytes_per_layer", "kv.hot_entries", "kv.cold_entries")
        gauges = [store.latest(name, labels, end) for name in told]
        hot, cold = grew("tier.layer_hot_accesses", labels), grew("tier.layer_cold_accesses", labels)
        read = _share(grew("sparse.layer_entries_read", labels), grew("sparse.layer_entries_total", labels))
        reads = hot + cold if hot is not None and cold is not None else None
        rows.append((str(layer), *gauges, read, _share(hot, reads)))
    return Table(_COLUMNS, tuple(rows))


def _share(top: float | None, bottom: float | None) -> float | None:
    return top / bottom if top is not None and bottom else None


SCREEN = Screen(
    title="Layers",
    order=60,
    help="Every layer: its KV bytes over time and now, entries of both forms, what decode read.",
    facts=(
        Fact("resident KV", "kv_resident_bytes", -1),
        Fact("cold entries", "cold_entries_share"),
        Fact("hot reads", "hot_access_share", 1),
        Fact("layer spread", "layer_hit_rate_spread"),
    ),
    table=("Layer by layer", layers),
    layers=True,
)
