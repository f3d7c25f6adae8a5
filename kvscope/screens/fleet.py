"""Replicas, or the ranks of one engine, side by side, the one that stands out named."""

from __future__ import annotations

from dataclasses import replace

from kvscope.order import Look, Order
from kvscope.screens import Cell, Chart, Screen
from kvscope.screens.reader import Reader
from kvscope.signals import replicas
from kvscope.signals.reading import Missing, Reading
from kvscope.view import Table
from probes.catalog import REPLICA

_NO_REPLICAS = Missing("one engine", "watch the fleet: host1:8000,host2:8000 or prom+http://host:9090")
_COMPARED = {
    "tok/s": ("replica_throughput_ratio", "1/s"),
    "TTFT": ("replica_ttft_ratio", "s"),
    "TPOT": ("replica_tpot_ratio", "s"),
    "waiting": ("replica_waiting_gap", "requests"),
    "pool": ("replica_kv_usage_gap", "ratio"),
    "prefix hits": ("replica_prefix_hit_gap", "ratio"),
}
UNEVEN = 1.3
"""From where on the others wait for one rank (playbook ranks-uneven)."""
_RANK_COLUMNS = {
    "KV": "rank_kv_bytes",
    "blocks/step": "rank_blocks_per_step",
    "entries/s": "rank_reads_per_s",
    "attend": "rank_attend_share",
    "exchange": "rank_exchange_share",
    "waiting": "rank_wait_share",
    "sent/step": "rank_bytes_sent_per_step",
}


def fleet(reader: Reader) -> Table:
    """Replicas (or one engine's ranks) side by side, and above them the ones that surely stand out."""
    if (found := ranks(reader)) is not None:
        return found
    columns = (("replica", ""), *((name, unit) for name, (_, unit) in _COMPARED.items()))
    names, segment = replicas.names(reader.store), reader.current
    if len(names) < 2 or segment is None:
        return Table(columns, _NO_REPLICAS)
    values = [replicas.each(signal, reader.store, segment) for signal, _ in _COMPARED.values()]
    rows = [(name, *(_value(column.get(name)) for column in values)) for name in names]
    odd = tuple(replicas.outliers(reader.store, segment)) or ("no replica surely stands out",)
    return Table(columns, tuple(rows), odd, tuple(names))


def _value(found: Reading | Missing | None) -> float | None:
    return found.value if isinstance(found, Reading) else None


def ranks(reader: Reader) -> Table | None:
    """One row a rank; times are shares of that rank's own decode time. None without ranks."""
    own = {dict(labels)["rank"]: dict(labels).get(REPLICA, "") for labels in reader.store.keys("rank.kv_bytes")}
    if len(own) < 2:
        return None
    table = reader.cells("rank", "rank", _RANK_COLUMNS, _NO_REPLICAS)
    names = [] if isinstance(table.rows, Missing) else [str(row[0]) for row in table.rows]
    keys = tuple(own.get(name, "") for name in names)
    return replace(table, told=(_note(reader),), keys=keys if all(keys) else ())


def _note(reader: Reader) -> str:
    """Name the worst, where it is surely the one that others wait for."""
    ratio = reader.now("rank_read_ratio", slow=True)
    if not isinstance(ratio, Reading):
        return f"how evenly the ranks read is not known: {ratio.reason}"
    if ratio.value < UNEVEN:
        return f"the busiest rank reads {ratio.value:.2f} times the mean"
    return f"the busiest rank reads {ratio.value:.2f} times the mean: the others wait for it"


def _chosen(which: str, key: str, row: tuple[Cell, ...]) -> Order:
    """The overview of that replica alone."""
    return Look(f"replica/{key}")


SCREEN = Screen(
    title="Fleet",
    order=90,
    help="Replicas side by side, the one that stands out named; Enter on one opens its overview.",
    facts=(
        "generation_tokens_per_s",
        "running_requests",
        "waiting_requests",
    ),
    charts=(Chart("All together", (("generation_tokens_per_s",), ("kv_resident_bytes",))),),
    table=("Replicas: Enter looks at one alone", fleet),
    chosen=_chosen,
)
