"""Finished requests, the newest first; one opened: its time, its KV by layer, what came from earlier turns."""

from __future__ import annotations

from collections import defaultdict

from kvscope.order import Look, Order
from kvscope.screens import Cell, Screen
from kvscope.screens.reader import Reader
from kvscope.signals.reading import Missing
from kvscope.view import Table, Whole

MOST_REQUESTS = 512
NO_REQUESTS = Missing("no finished request was read", "an engine's flight recorder tells each one as it finishes")
_NOT_THERE = Missing("this request is no longer kept: only the newest are", "record, and replay the recording")
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
Row = dict[str, float]


def requests(reader: Reader) -> Table:
    """The newest finished requests, the latest first."""
    found = finished(reader)
    if not found:
        return Table(_COLUMNS, NO_REQUESTS)
    rows = [(row["t"], *(row.get(name) for name in _METRICS)) for row in reversed(found.values())]
    return Table(_COLUMNS, tuple(rows), keys=tuple(reversed(found)))


def finished(reader: Reader) -> dict[str, Row]:
    """Key → one dict a finished request, oldest first: its values share a time, the n-th of a time belong together."""
    store = reader.store
    rows: dict[tuple[float, int], Row] = {}
    for metric in _METRICS:
        for labels in store.keys(metric):
            times, values = store.series(metric, labels, None, reader.end_s or None)
            seen: dict[float, int] = defaultdict(int)
            for t, value in list(zip(times, values, strict=True))[-MOST_REQUESTS:]:
                rows.setdefault((t, seen[t]), {"t": t})[metric] = value
                seen[t] += 1
    whole = [key for key in sorted(rows) if "request.tokens_out" in rows[key]][-MOST_REQUESTS:]
    return {f"{t!r}:{nth}": rows[t, nth] for t, nth in whole}


def request(reader: Reader) -> tuple[Whole, ...]:
    """One finished request from its arrival to its last token, and what is known of its tokens."""
    row = finished(reader).get(reader.about)
    if row is None:
        return (Whole("request", "s", _NOT_THERE),) if reader.about else ()
    queue, prefill, whole = (row.get(n) for n in ("sched.queue_time", "latency.prefill_time", "latency.e2e"))
    parts = [(n, n, v) for n, v in (("queue", queue), ("prefill", prefill)) if v is not None]
    if whole is not None and len(parts) == 2:
        parts.append(("decode", "decode", max(whole - sum(value for _, _, value in parts), 0.0)))
    tokens_in, tokens_out = row.get("request.tokens_in", 0.0), row.get("request.tokens_out", 0.0)
    told = [f"{tokens_in:.0f} tokens in, {tokens_out:.0f} out", _again(row)]
    missing = Missing("no source reports queue and prefill time of single requests", "the engine's flight recorder")
    return (Whole("request", "s", tuple(parts) or missing, tuple(told)),)


def _again(row: dict[str, float]) -> str:
    hits = row.get("request.prefix_hits")
    if hits is None:
        return "turns: unknown, this source does not tell prefix hits of single requests"
    share = hits / row["request.tokens_in"] if row.get("request.tokens_in") else 0.0
    return f"{hits:.0f} prompt tokens ({share:.0%}) came from an earlier turn or request" if hits else "no earlier turn"


def request_layers(reader: Reader) -> Table | None:
    """The request's KV by layer. Inferred: its bytes, split as all KV was over the layers when it ended."""
    columns = (("layer", ""), ("KV", "B"), ("share", "ratio"))
    row, store = finished(reader).get(reader.about), reader.store
    if row is None:
        return None
    held = {
        int(dict(labels).get("layer", -1)): store.latest("kv.bytes_per_layer", labels, row["t"])
        for labels in store.keys("kv.bytes_per_layer")
    }
    total = sum(value or 0.0 for value in held.values())
    if not total or "request.kv_bytes" not in row:
        return Table(
            columns, Missing("KV by layer needs kv.bytes_per_layer and request.kv_bytes", "the engine's probes")
        )
    shares = ((layer, (value or 0.0) / total) for layer, value in sorted(held.items()))
    rows = tuple((str(layer), share * row["request.kv_bytes"], share) for layer, share in shares)
    return Table(columns, rows, ("inferred: split as all KV was when it ended",))


def _chosen(which: str, key: str, row: tuple[Cell, ...]) -> Order | None:
    """Open a request; the table of its layers opens nothing."""
    return Look(f"requests/{key}") if which == "table" else None


SCREEN = Screen(
    title="Requests",
    order=30,
    needs=("request.tokens_out",),
    help="Finished requests, sorted by any column; one opened: its time, its KV by layer, its earlier turns.",
    facts=(
        "requests_per_s",
        "queue_time_p95_s",
        "ttft_p95_s",
        "tpot_p95_s",
    ),
    table=("Finished requests: Enter opens one", requests),
    beside=("Its KV by layer", request_layers),
    wholes=("One request", request),
    empty="Enter on a row opens the request",
    chosen=_chosen,
    closes=True,
)
