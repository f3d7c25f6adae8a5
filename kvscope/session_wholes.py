"""Amounts and what they consist of: the pool by use and by form, and one request's time."""

from __future__ import annotations

from kvscope.session_tables import finished
from kvscope.session_view import Reader
from kvscope.signals.reading import Missing
from kvscope.view import Table, Whole

_NO_POOL = Missing("this engine tells neither the bytes nor the tokens of its pool", "probes in the engine")
_NO_FORMS = Missing("no source reports kv.hot_entries and kv.cold_entries", "per-layer probes in the engine")
_NOT_THERE = Missing("this request is no longer kept: only the newest are", "record, and replay the recording")


def pool(reader: Reader) -> tuple[Whole, ...]:
    """The pool by use, in bytes or else in tokens, and what it holds by form, in entries of all layers."""
    return _use(reader), _forms(reader)


def _use(reader: Reader) -> Whole:
    def latest(name: str) -> float | None:
        return reader.store.latest(name, (), reader.end_s)

    reserved, resident = latest("kv.reserved_bytes"), latest("kv.resident_bytes")
    if reserved is None or resident is None:
        return _tokens(latest("kv.capacity_tokens"), latest("kv.usage_ratio"))
    overhead, stranded = latest("kv.overhead_bytes") or 0.0, latest("kv.stranded_bytes")
    free = max(reserved - resident - (stranded or 0.0), 0.0)
    told = () if stranded is not None else ("stranded: unknown, no source reports kv.stranded_bytes",)
    parts = (
        ("pages", "pages", max(resident - overhead, 0.0)),
        *((("overhead", "overhead", overhead),) if overhead else ()),
        *((("stranded", "stranded", stranded),) if stranded is not None else ()),
        ("free", "free", free),
    )
    return Whole("pool", "B", parts, told)


def _tokens(capacity: float | None, usage: float | None) -> Whole:
    if capacity is None or usage is None:
        return Whole("pool", "B", _NO_POOL)
    return Whole("pool", "tokens", (("pages", "in use", capacity * usage), ("free", "free", capacity * (1 - usage))))


def _forms(reader: Reader) -> Whole:
    found = []
    for name, metric, label in (("hot", "kv.hot_entries", "full precision"), ("cold", "kv.cold_entries", "cold form")):
        values = [reader.store.latest(metric, labels, reader.end_s) for labels in reader.store.keys(metric)]
        known = [value for value in values if value is not None]
        if known:
            found.append((name, label, sum(known)))
    return Whole("by form", "entries", tuple(found) or _NO_FORMS)


def request(reader: Reader, key: str) -> tuple[Whole, ...]:
    """One finished request from its arrival to its last token, and what is known of its tokens."""
    row = finished(reader).get(key)
    if row is None:
        return (Whole("request", "s", _NOT_THERE),) if key else ()
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


def request_layers(reader: Reader, key: str) -> Table | None:
    """The request's KV by layer. Inferred: its bytes, split as all KV was over the layers when it ended."""
    columns = (("layer", ""), ("KV", "B"), ("share", "ratio"))
    row, store = finished(reader).get(key), reader.store
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
