"""Tables of the screens: layers side by side, finished requests, requests by length, replicas."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from kvscope import session_ranks
from kvscope.session_view import Reader
from kvscope.signals import replicas
from kvscope.signals.reading import Missing, Reading
from kvscope.store import Store
from kvscope.view import Table
from probes.sample import Labels

NOW_S = 10.0
MOST_REQUESTS = 512
_NO_LAYERS = Missing("no source reports kv.bytes_per_layer", "per-layer probes in the engine")
NO_REQUESTS = Missing("no finished request was read", "an engine's flight recorder tells each one as it finishes")
_NO_REPLICAS = Missing("one engine", "watch the fleet: host1:8000,host2:8000 or prom+http://host:9090")
_NO_GPUS = Missing(
    "no source reports a GPU", "run kvscope on its machine with nvidia-ml-py (kvscope[gpu]), or attach dcgm-exporter"
)
_NO_LENGTHS = Missing("no source reports sparse.entries_read with batch.context_tokens", "probes in the engine")
_COLUMNS = (
    ("ended", "time"),
    ("in", "tokens"),
    ("out", "tokens"),
    ("queue", "s"),
    ("prefill", "s"),
    ("TTFT", "s"),
    ("TPOT", "s"),
    ("total", "s"),
    ("KV", "B"),
    ("preempted", ""),
    ("prefix", "tokens"),
)
_METRICS = (
    "request.tokens_in",
    "request.tokens_out",
    "sched.queue_time",
    "latency.prefill_time",
    "latency.ttft",
    "latency.tpot",
    "latency.e2e",
    "request.kv_bytes",
    "request.preemptions",
    "request.prefix_hits",
)
_RowOf = dict[str, float]


def layers(reader: Reader) -> Table:
    """One row a layer: bytes, entries of both forms, and over the last seconds the share read and the share hot."""
    columns = (
        ("layer", ""),
        ("KV", "B"),
        ("hot entries", "entries"),
        ("cold entries", "entries"),
        ("share read", "ratio"),
        ("hot reads", "ratio"),
    )
    store, end = reader.store, reader.end_s
    found = {int(dict(labels).get("layer", -1)): labels for labels in store.keys("kv.bytes_per_layer")}
    if not found:
        return Table(columns, _NO_LAYERS)

    def grew(metric: str, labels: Labels) -> float | None:
        return _grown(store, metric, labels, end - NOW_S, end)

    rows = []
    for layer, labels in sorted(found.items()):
        told = ("kv.bytes_per_layer", "kv.hot_entries", "kv.cold_entries")
        gauges = [store.latest(name, labels, end) for name in told]
        hot, cold = grew("tier.layer_hot_accesses", labels), grew("tier.layer_cold_accesses", labels)
        read = _share(grew("sparse.layer_entries_read", labels), grew("sparse.layer_entries_total", labels))
        reads = hot + cold if hot is not None and cold is not None else None
        rows.append((str(layer), *gauges, read, _share(hot, reads)))
    return Table(columns, tuple(rows))


def requests(reader: Reader) -> Table:
    """The newest finished requests, the latest first."""
    found = finished(reader)
    if not found:
        return Table(_COLUMNS, NO_REQUESTS)
    rows = [(row["t"], *(row.get(name) for name in _METRICS)) for row in reversed(found.values())]
    return Table(_COLUMNS, tuple(rows), keys=tuple(reversed(found)))


def by_length(reader: Reader) -> Table:
    """Finished requests of the newest, grouped by tokens in and out together, in powers of two."""
    columns = (("tokens up to", "tokens"), ("requests", ""), ("KV each", "B"), ("per token", "B"), ("TTFT", "s"))
    groups: dict[int, list[_RowOf]] = defaultdict(list)
    for row in finished(reader).values():
        length = row.get("request.tokens_in", 0.0) + row.get("request.tokens_out", 0.0)
        if length and "request.kv_bytes" in row:
            groups[max(int(length) - 1, 1).bit_length()].append({**row, "length": length})
    if not groups:
        return Table(columns, NO_REQUESTS)
    rows = []
    for power, members in sorted(groups.items()):
        whole = sum(row["request.kv_bytes"] for row in members)
        ttft = [row["latency.ttft"] for row in members if "latency.ttft" in row]
        per_token = whole / sum(row["length"] for row in members)
        mean = sum(ttft) / len(ttft) if ttft else None
        rows.append((float(2**power), float(len(members)), whole / len(members), per_token, mean))
    return Table(columns, tuple(rows), ("own blocks only: a shared prefix is counted with no request",))


def kept_by_length(reader: Reader) -> Table:
    """Share of the entries that was read, by the batch's mean context, in powers of two."""
    columns = (("context up to", "tokens"), ("share read", "ratio"), ("moments", ""))
    segment, store = reader.current, reader.store
    if segment is None:
        return Table(columns, _NO_LENGTHS)
    times, read = store.series("sparse.entries_read", (), segment.start_s)
    whole = store.series("sparse.entries_total", (), segment.start_s)[1]
    groups: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for (_, end), (r0, r1), (w0, w1) in zip(pairwise(times), pairwise(read), pairwise(whole), strict=False):
        context = store.latest("batch.context_tokens", (), end)
        if context and w1 > w0 and r1 >= r0:
            groups[max(int(context) - 1, 1).bit_length()].append((r1 - r0, w1 - w0))
    if not groups:
        return Table(columns, _NO_LENGTHS)
    rows = [
        (float(2**power), sum(r for r, _ in pairs) / sum(w for _, w in pairs), float(len(pairs)))
        for power, pairs in sorted(groups.items())
    ]
    return Table(columns, tuple(rows), ("by the mean context of the batch, current segment",))


def fleet(reader: Reader) -> Table:
    """Replicas (or one engine's ranks) side by side, and above them the ones that surely stand out."""
    if (found := session_ranks.ranks(reader)) is not None:
        return found
    told = {
        "tok/s": ("replica_throughput_ratio", "1/s"),
        "TTFT": ("replica_ttft_ratio", "s"),
        "TPOT": ("replica_tpot_ratio", "s"),
        "waiting": ("replica_waiting_gap", "requests"),
        "pool": ("replica_kv_usage_gap", "ratio"),
        "prefix hits": ("replica_prefix_hit_gap", "ratio"),
    }
    columns = (("replica", ""), *((name, unit) for name, (_, unit) in told.items()))
    names, segment = replicas.names(reader.store), reader.current
    if len(names) < 2 or segment is None:
        return Table(columns, _NO_REPLICAS)
    values = [replicas.each(signal, reader.store, segment) for signal, _ in told.values()]
    rows = [(name, *(_value(column.get(name)) for column in values)) for name in names]
    odd = tuple(replicas.outliers(reader.store, segment)) or ("no replica surely stands out",)
    return Table(columns, tuple(rows), odd, tuple(names))


def gpus(reader: Reader) -> Table:
    """One row a GPU: how busy, how full, what power; over the last seconds."""
    told = {
        "busy": ("gpu.util", "ratio"),
        "memory busy": ("gpu.mem_bw_util", "ratio"),
        "SMs": ("gpu.sm_active", "ratio"),
        "tensor": ("gpu.tensor_active", "ratio"),
        "memory": ("gpu.mem_used", "B"),
        "power": ("gpu.power", "W"),
    }
    columns = (("GPU", ""), *((name, unit) for name, (_, unit) in told.items()))
    store, end = reader.store, reader.end_s
    found = sorted({labels for metric, _ in told.values() for labels in store.keys(metric)})
    if not found:
        return Table(columns, _NO_GPUS)
    rows = []
    for labels in found:
        values = [store.series(metric, labels, end - NOW_S, end)[1] for metric, _ in told.values()]
        rows.append((dict(labels).get("gpu", "?"), *(sum(one) / len(one) if one else None for one in values)))
    return Table(columns, tuple(rows))


def finished(reader: Reader) -> dict[str, _RowOf]:
    """Key → one dict a finished request, oldest first: its values share a time, the n-th of a time belong together."""
    store = reader.store
    rows: dict[tuple[float, int], _RowOf] = {}
    for metric in _METRICS:
        for labels in store.keys(metric):
            times, values = store.series(metric, labels, None, reader.end_s or None)
            seen: dict[float, int] = defaultdict(int)
            for t, value in list(zip(times, values, strict=True))[-MOST_REQUESTS:]:
                rows.setdefault((t, seen[t]), {"t": t})[metric] = value
                seen[t] += 1
    whole = [key for key in sorted(rows) if "request.tokens_out" in rows[key]][-MOST_REQUESTS:]
    return {f"{t!r}:{nth}": rows[t, nth] for t, nth in whole}


def _grown(store: Store, metric: str, labels: Labels, start_s: float, end_s: float) -> float | None:
    values = store.series(metric, labels, start_s, end_s)[1]
    return values[-1] - values[0] if len(values) >= 2 and values[-1] >= values[0] else None


def _share(top: float | None, bottom: float | None) -> float | None:
    return top / bottom if top is not None and bottom else None


def _value(found: Reading | Missing | None) -> float | None:
    return found.value if isinstance(found, Reading) else None
