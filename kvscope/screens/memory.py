"""The pool: held, filled, wasted, and what admission believes against what is measured."""

from __future__ import annotations

from collections import defaultdict

from kvscope.requests import finished
from kvscope.screens import Chart, Screen
from kvscope.screens.reader import Reader
from kvscope.screens.requests import NO_REQUESTS
from kvscope.signals.reading import Missing
from kvscope.view import Table, Whole

_NO_POOL = Missing("this engine tells neither the bytes nor the tokens of its pool", "probes in the engine")
_NO_FORMS = Missing("no source reports kv.hot_entries and kv.cold_entries", "per-layer probes in the engine")


def pool(reader: Reader) -> tuple[Whole, ...]:
    """The pool by use, in bytes or else in tokens, and what it holds by form, in entries of all layers."""
    return _use(reader), _forms(reader)


def _use(reader: Reader) -> Whole:
    reserved, resident = reader.latest("kv.reserved_bytes"), reader.latest("kv.resident_bytes")
    if reserved is None or resident is None:
        return _tokens(reader.latest("kv.capacity_tokens"), reader.latest("kv.usage_ratio"))
    overhead, stranded = reader.latest("kv.overhead_bytes") or 0.0, reader.latest("kv.stranded_bytes")
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


def by_length(reader: Reader) -> Table:
    """Finished requests of the newest, grouped by tokens in and out together, in powers of two."""
    columns = (("tokens up to", "tokens"), ("requests", ""), ("KV each", "B"), ("per token", "B"), ("TTFT", "s"))
    groups: dict[int, list[dict[str, float]]] = defaultdict(list)
    for row in (one.row for one in finished(reader.store, reader.end_s or None).values()):
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


SCREEN = Screen(
    title="Memory",
    order=40,
    help="The pool: held, filled, wasted, and what admission believes against what is measured.",
    facts=(
        "kv_resident_bytes",
        "kv_reserved_bytes",
        "kv_resident_share",
        "kv_usage_ratio",
        "kv_overhead_share",
        "kv_assumed_bytes",
        "kv_assumed_share",
        "kv_bytes_per_token",
        "memory_estimate_coefficient",
        "evictions_per_s",
    ),
    charts=(
        Chart("KV memory", (("kv_resident_bytes", "kv_assumed_bytes", "kv_reserved_bytes"),)),
        Chart("Bytes per token", (("kv_bytes_per_token", "kv_assumed_bytes_per_token"),)),
        Chart("KV pool in use and prefix hits", (("kv_usage_ratio", "prefix_hit_rate"),), fallback=True),
    ),
    table=("By length of request", by_length),
    wholes=("Pool", pool),
)
