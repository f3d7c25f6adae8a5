"""The first screen: what limits it and how much room is left, its vital signs, where time goes, charts."""

from __future__ import annotations

from dataclasses import replace

from kvscope.format import duration
from kvscope.headroom import headroom
from kvscope.screens import Chart, Screen
from kvscope.screens.reader import MEASURING, NOW_S, Reader
from kvscope.signals.reading import Missing, Reading
from kvscope.state import readings
from kvscope.view import Headline, Share, View
from kvscope.vitals import vitals

_HEADLINES = (
    "kv_resident_bytes",
    "generation_tokens_per_s",
    "ttft_p50_s",
    "tpot_p50_s",
    "running_requests",
    "waiting_requests",
    "right_token_share",
)
_SLOW = ("ttft_p50_s", "tpot_p50_s", "right_token_share")
"""Few events a second: these look as far back as they must."""
_INSTEAD = {"kv_resident_bytes": "kv_usage_ratio"}
"""What stands in for a headline that an engine does not report."""

_PARTS = ("linear", "attend", "host", "sample", "index", "gather", "decompress", "transfer", "unaccounted")
_LABELS = {"transfer": "tier move"}
_REQUEST = (("queue", "queue_time_mean_s"), ("prefill", "prefill_time_mean_s"))


def _more(reader: Reader, view: View) -> View:
    total, found = reader.fact("decode_s_per_token"), reader.diagnosis
    whole, path = request_path(reader)
    account = found.account if found else None
    cap = account.headroom.get("may_run") if account else None
    return replace(
        view,
        headlines=tuple(_headline(reader, name) for name in _HEADLINES),
        accounting=tuple(_part(reader, name, total) for name in _PARTS),
        token_time=total,
        request_path=path,
        request_time=whole,
        latencies=reader.charts.latencies(reader.store, "latency.ttft"),
        account=account,
        rooms=headroom(account, readings(found)) if found and account else (),
        vitals=vitals(lambda name: reader.now(name, slow=name not in _QUICK), reader.slo, cap),
        over=_over(reader),
    )


_QUICK = ("running_requests", "waiting_requests", "kv_usage_ratio")
"""Gauges: the last seconds are enough."""


def _over(reader: Reader) -> str:
    if reader.current is None:
        return ""
    length = reader.current.end_s - reader.current.start_s
    return f"all {duration(length)}" if reader.whole else f"last {duration(min(length, NOW_S))}"


def _headline(reader: Reader, name: str) -> Headline:
    found = reader.fact(name, name in _SLOW)
    if isinstance(found.now, Missing) and name in _INSTEAD and found.now.reason != MEASURING:
        instead = reader.fact(_INSTEAD[name])
        return instead if isinstance(instead.now, Reading) else found
    return found


def _part(reader: Reader, name: str, total: Headline) -> Share:
    """One part of a decode step; all of them sum to one with what is unaccounted."""
    now, was = reader.now(f"{name}_share"), reader.was(f"{name}_share")
    base, label = was.value if isinstance(was, Reading) else None, _LABELS.get(name, name)
    if isinstance(now, Missing):
        return Share(name, label, now, base)
    return Share(name, label, now.value, base, now.value * total.now.value if isinstance(total.now, Reading) else None)


def request_path(reader: Reader) -> tuple[Headline, tuple[Share, ...]]:
    """Queue, prefill and decode as shares of the mean request; decode is what the other two leave."""
    total = reader.fact("e2e_mean_s", slow=True)
    parts = [_request_part(reader, total, *part) for part in _REQUEST]
    known = [part.share for part in parts if not isinstance(part.share, Missing)]
    bases = [part.baseline for part in parts if part.baseline is not None]
    rest: float | Missing = Missing("queue or prefill time is unknown", "")
    if len(known) == len(parts):
        rest = max(1.0 - sum(known), 0.0)
    base = max(1.0 - sum(bases), 0.0) if len(bases) == len(parts) else None
    seconds = rest * total.now.value if isinstance(total.now, Reading) and not isinstance(rest, Missing) else None
    return total, (*parts, Share("decode", "decode", rest, base, seconds))


def _request_part(reader: Reader, total: Headline, name: str, signal: str) -> Share:
    now, was = reader.now(signal, True), reader.was(signal)
    base = None
    if isinstance(was, Reading) and isinstance(total.baseline, Reading) and total.baseline.value > 0:
        base = was.value / total.baseline.value
    if isinstance(now, Missing):
        return Share(name, name, now, base)
    if not isinstance(total.now, Reading) or total.now.value <= 0:
        none = total.now if isinstance(total.now, Missing) else Missing("requests took no time")
        return Share(name, name, none, base)
    return Share(name, name, min(now.value / total.now.value, 1.0), base, now.value)


SCREEN = Screen(
    title="Overview",
    order=0,
    help="What limits it, how much room is left, its vital signs, findings, charts.",
    charts=(
        Chart("Tokens out and prefilled", (("generation_tokens_per_s", "prefilled_tokens_per_s"),)),
        Chart("Requests running and waiting", (("running_requests", "waiting_requests"),)),
        Chart("KV memory", (("kv_resident_bytes",),)),
        Chart("Entries decode reads", (("sparse_hit_rate",),)),
        Chart("Hot and cold reads", (("hot_reads_per_s", "cold_reads_per_s"),)),
        Chart("KV pool in use and prefix hits", (("kv_usage_ratio", "prefix_hit_rate"),)),
    ),
    layers=True,
    more=_more,
)
