"""Finished requests, the newest first; one opened: its time, its KV by layer, what came from earlier turns."""

from __future__ import annotations

from kvscope import requests as single
from kvscope.order import Look, Order
from kvscope.screens import Cell, Screen
from kvscope.screens.reader import Reader
from kvscope.signals.reading import Missing
from kvscope.view import Table, Whole

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


def requests(reader: Reader) -> Table:
    """The newest finished requests, the latest first."""
    found = _finished(reader)
    if not found:
        return Table(_COLUMNS, NO_REQUESTS)
    rows = [(one.t, *(one.get(name) for name in _METRICS)) for one in reversed(found.values())]
    return Table(_COLUMNS, tuple(rows), keys=tuple(reversed(found)))


def _finished(reader: Reader) -> dict[str, single.Request]:
    return single.finished(reader.store, reader.end_s or None)


def request(reader: Reader) -> tuple[Whole, ...]:
    """One finished request from its arrival to its last token: its time, and whom it waited for."""
    found = _finished(reader)
    one = found.get(reader.about)
    if one is None:
        return (Whole("request", "s", _NOT_THERE),) if reader.about else ()
    told = single.explain(one, found.values(), reader.store)
    parts = tuple((name, name, value) for name, value in told.parts)
    missing = Missing("no source reports queue and prefill time of single requests", "the engine's flight recorder")
    return (Whole("request", "s", parts or missing, (*told.lines, *(f"not known: {line}" for line in told.missing))),)


def request_layers(reader: Reader) -> Table | None:
    """The request's KV by layer. Inferred: its bytes, split as all KV was over the layers when it ended."""
    columns = (("layer", ""), ("KV", "B"), ("share", "ratio"))
    one, store = _finished(reader).get(reader.about), reader.store
    if one is None:
        return None
    held = {
        int(dict(labels).get("layer", -1)): store.latest("kv.bytes_per_layer", labels, one.t)
        for labels in store.keys("kv.bytes_per_layer")
    }
    total = sum(value or 0.0 for value in held.values())
    whole = one.get("request.kv_bytes")
    if not total or whole is None:
        return Table(
            columns, Missing("KV by layer needs kv.bytes_per_layer and request.kv_bytes", "the engine's probes")
        )
    shares = ((layer, (value or 0.0) / total) for layer, value in sorted(held.items()))
    rows = tuple((str(layer), share * whole, share) for layer, share in shares)
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
