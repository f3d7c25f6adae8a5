"""Replicas, or the ranks of one engine, side by side, the one that stands out named."""

from __future__ import annotations

from collections.abc import Mapping

from kvscope.order import Look, Order
from kvscope.screens import Cell, Chart, Screen
from kvscope.screens.reader import Fact, Reader
from kvscope.signals import replicas
from kvscope.signals.reading import Missing, Reading
from kvscope.view import Table
from probes.catalog import REPLICA
from probes.sample import Labels

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
_COLUMNS = (
    ("rank", ""),
    ("KV", "B"),
    ("blocks/step", ""),
    ("entries/s", "1/s"),
    ("attend", "ratio"),
    ("exchange", "ratio"),
    ("waiting", "ratio"),
    ("sent/step", "B"),
)


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
    """One row a rank over the current segment; times are shares of that rank's own decode time. None without ranks."""
    store, segment = reader.store, reader.current
    found: dict[str, Labels] = {dict(labels)["rank"]: labels for labels in store.keys("rank.kv_bytes")}
    if len(found) < 2 or segment is None:
        return None

    def grew(metric: str, labels: Labels) -> float | None:
        values = store.series(metric, labels, segment.start_s, segment.end_s)[1]
        return values[-1] - values[0] if len(values) > 1 and values[-1] >= values[0] else None

    rows, keys = [], []
    for rank, labels in sorted(found.items(), key=lambda one: (len(one[0]), one[0])):
        own: Labels = tuple(pair for pair in labels if pair[0] == REPLICA)
        decode, steps = grew("time.decode", own), grew("batch.decode_steps", own)
        told = {name: grew(f"rank.{name}", labels) for name in _TOLD}
        times = store.series("rank.entries_read", labels, segment.start_s, segment.end_s)[0]
        seconds = times[-1] - times[0] if len(times) > 1 else None
        per_step, shares = _over(told, steps), _over(told, decode)
        rows.append(
            (
                rank,
                store.latest("rank.kv_bytes", labels),
                per_step["selected_blocks"],
                _over(told, seconds)["entries_read"],
                *(shares[f"{name}_time"] for name in ("attend", "exchange", "wait")),
                per_step["bytes_sent"],
            )
        )
        keys.append(dict(labels).get(REPLICA, ""))
    return Table(_COLUMNS, tuple(rows), (_note(reader),), tuple(keys) if all(keys) else ())


_TOLD = ("selected_blocks", "entries_read", "attend_time", "exchange_time", "wait_time", "bytes_sent")


def _over(told: Mapping[str, float | None], bottom: float | None) -> dict[str, float | None]:
    return {name: value / bottom if value is not None and bottom else None for name, value in told.items()}


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
        Fact("throughput", "generation_tokens_per_s", 1),
        Fact("running", "running_requests"),
        Fact("waiting", "waiting_requests"),
    ),
    charts=(Chart("All together", (("throughput",), ("kv_memory",))),),
    table=("Replicas: Enter looks at one alone", fleet),
    chosen=_chosen,
)
