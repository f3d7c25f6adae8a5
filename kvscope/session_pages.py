"""What each screen beside the overview shows: which signals, which lines, which table. Read only while it is open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvscope import session_tables, session_view, session_wholes
from kvscope.session_trends import LINES, Charts, Line
from kvscope.session_view import Reader, Shown, compared
from kvscope.view import Headline, Page, Table, View, Whole

OVERVIEW = "overview"
Fact = tuple[str, str, int]
"""Label, signal, and which way is good."""

_MORE = (
    Line("promotions", "promotions", "1/s", "tier.promotions", "rate"),
    Line("demotions", "demotions", "1/s", "tier.demotions", "rate"),
    Line("transfer_share", "tier move", "ratio", "tier.transfer_time", "share", per="time.decode"),
    Line("decompress_share", "decompress", "ratio", "decompress.time", "share", per="time.decode"),
    Line("kv_assumed", "assumed", "B", "kv.assumed_bytes", "mean"),
    Line("kv_reserved", "pool", "B", "kv.reserved_bytes", "mean"),
    Line("bytes_measured", "measured", "B", "kv.bytes_per_token_measured", "mean"),
    Line("bytes_assumed", "assumed", "B", "kv.bytes_per_token_assumed", "mean"),
    Line("host_cpu", "all cores", "ratio", "host.cpu_util", "mean"),
    Line("gpu_util", "GPU busy", "ratio", "gpu.util", "mean"),
    Line("gpu_memory", "GPU memory interface", "ratio", "gpu.mem_bw_util", "mean"),
)
_BY_NAME = {line.name: line for line in (*LINES, *_MORE)}


@dataclass(frozen=True, slots=True)
class Plan:
    """What a screen needs; ``layers``: the map of bytes per layer over time.

    ``wholes`` and ``beside`` are told what of the screen is opened.
    """

    facts: tuple[Fact, ...] = ()
    lines: tuple[str, ...] = ()
    table: Callable[[Reader], Table] | None = None
    layers: bool = False
    wholes: Callable[[Reader, str], tuple[Whole, ...]] | None = None
    beside: Callable[[Reader, str], Table | None] | None = None


PLANS: dict[str, Plan] = {
    "layers": Plan(
        (
            ("resident KV", "kv_resident_bytes", -1),
            ("cold entries", "cold_entries_share", 0),
            ("hot reads", "hot_access_share", 1),
            ("layer spread", "layer_hit_rate_spread", 0),
        ),
        table=session_tables.layers,
        layers=True,
    ),
    "sparse": Plan(
        (
            ("entries read", "sparse_hit_rate", 0),
            ("asked for", "kept_share_target", 0),
            ("read / asked", "hit_rate_over_target", -1),
            ("index time", "index_share", -1),
            ("gather time", "gather_share", -1),
            ("read/token", "entries_read_per_token", -1),
            ("layer spread", "layer_hit_rate_spread", 0),
            ("right tokens", "right_token_share", 1),
        ),
        ("sparse_hit_rate", "index_share", "gather_share"),
        session_tables.kept_by_length,
    ),
    "tiers": Plan(
        (
            ("hot reads", "hot_access_share", 1),
            ("moves/token", "tier_switches_per_token", -1),
            ("moved", "tier_bytes_per_s", -1),
            ("moved/token", "tier_bytes_per_token", -1),
            ("tier move", "transfer_share", -1),
            ("decompress", "decompress_share", -1),
            ("cold entries", "cold_entries_share", 0),
            ("slower hits", "tier_hit_rate", 1),
            ("failures", "tier_failures_per_s", -1),
        ),
        ("hot_reads", "cold_reads", "promotions", "demotions", "transfer_share", "decompress_share"),
    ),
    "memory": Plan(
        (
            ("resident KV", "kv_resident_bytes", -1),
            ("pool", "kv_reserved_bytes", 0),
            ("pool filled", "kv_resident_share", 0),
            ("pool in use", "kv_usage_ratio", 0),
            ("overhead", "kv_overhead_share", -1),
            ("assumed", "kv_assumed_bytes", 0),
            ("assumed/pool", "kv_assumed_share", 0),
            ("bytes/token", "kv_bytes_per_token", -1),
            ("assumed/real", "memory_estimate_coefficient", -1),
            ("evictions", "evictions_per_s", -1),
        ),
        ("kv_memory", "kv_assumed", "kv_reserved", "bytes_measured", "bytes_assumed"),
        session_tables.by_length,
        wholes=lambda reader, _: session_wholes.pool(reader),
    ),
    "requests": Plan(
        (
            ("finished", "requests_per_s", 1),
            ("queue p95", "queue_time_p95_s", -1),
            ("TTFT p95", "ttft_p95_s", -1),
            ("TPOT p95", "tpot_p95_s", -1),
        ),
        table=session_tables.requests,
        wholes=session_wholes.request,
        beside=session_wholes.request_layers,
    ),
    "host": Plan(
        (
            ("all cores", "host_cpu_share", 0),
            ("engine cores", "process_cores", 0),
            ("GPU busy", "gpu_util_share", 0),
            ("GPU SMs", "gpu_sm_share", 0),
            ("tensor pipes", "gpu_tensor_share", 0),
            ("memory busy", "gpu_mem_bw_share", 0),
            ("memory/comp.", "gpu_memory_over_compute", 0),
            ("PCIe in", "pcie_rx_bytes_per_s", 0),
            ("host in step", "host_share", -1),
        ),
        ("host_cpu", "host_share", "gpu_util", "gpu_memory"),
        session_tables.gpus,
    ),
    "fleet": Plan(
        (
            ("throughput", "generation_tokens_per_s", 1),
            ("running", "running_requests", 0),
            ("waiting", "waiting_requests", 0),
        ),
        ("throughput", "kv_memory"),
        session_tables.fleet,
    ),
    "diagnosis": Plan(lines=("throughput",)),
    "lab": Plan(
        (
            ("throughput", "generation_tokens_per_s", 1),
            ("TPOT p50", "tpot_p50_s", -1),
            ("TTFT p50", "ttft_p50_s", -1),
            ("resident KV", "kv_resident_bytes", -1),
            ("right tokens", "right_token_share", 1),
            ("waiting", "waiting_requests", 0),
        ),
        ("throughput", "kv_memory"),
    ),
}


def numbers(path: str, reader: Reader, charts: Charts, window_s: float) -> View:
    """A view with the numbers of a screen and nothing else; ``path`` is its name, or name/what of it is opened.

    The overview where nobody planned such a screen.
    """
    screen, _, about = path.partition("/")
    plan = PLANS.get(screen)
    end = reader.end_s or None
    if plan is None:
        charts.read(reader.store, window_s, end_s=end)
        return session_view.numbers(reader, charts)
    lines = tuple(_BY_NAME[name] for name in plan.lines)
    charts.read(reader.store, window_s, lines, plan.layers, end)
    return View(
        target="",
        kind="",
        now_s=0.0,
        alive=True,
        trends=charts.trends(reader.now, reader.was, lines),
        layers=charts.layers() if plan.layers else None,
        window=charts.window,
        page=Page(
            screen,
            tuple(_fact(reader, fact) for fact in plan.facts),
            plan.table(reader) if plan.table else None,
            about,
            plan.beside(reader, about) if plan.beside else None,
            plan.wholes(reader, about) if plan.wholes else (),
        ),
    )


def _fact(reader: Reader, fact: Fact) -> Headline:
    label, signal, better = fact
    was = reader.was(signal) if reader.baseline else None
    return compared(Shown(signal, label, signal, better), reader.now(signal, slow=True), was)
