"""The first screen: the numbers that say whether the service is well, where time goes, and the charts beside them."""

from __future__ import annotations

from dataclasses import replace

from kvscope.screens import Chart, Screen
from kvscope.screens.reader import Fact, Reader
from kvscope.signals.reading import Missing, Reading
from kvscope.view import Headline, Share, View

_HEADLINES = (
    Fact("KV memory", "kv_resident_bytes", -1, "kv_memory"),
    Fact("Throughput", "generation_tokens_per_s", 1, "throughput"),
    Fact("TTFT p50", "ttft_p50_s", -1, "ttft"),
    Fact("TPOT p50", "tpot_p50_s", -1, "tpot"),
    Fact("Running", "running_requests", 0, "running"),
    Fact("Waiting", "waiting_requests", 0, "waiting"),
    Fact("Accuracy", "right_token_share", 1, "accuracy"),
)
_SLOW = ("ttft", "tpot", "accuracy")
"""Few events a second: these look as far back as they must."""
_INSTEAD = {"kv_resident_bytes": Fact("KV usage", "kv_usage_ratio", 0, "kv_usage")}
"""What stands in for a headline that an engine does not report."""

_PARTS = ("linear", "attend", "host", "sample", "index", "gather", "decompress", "transfer", "unaccounted")
_LABELS = {"transfer": "tier move"}
_REQUEST = (("queue", "queue_time_mean_s"), ("prefill", "prefill_time_mean_s"))


def _more(reader: Reader, view: View) -> View:
    total = reader.fact(Fact("One output token", "decode_s_per_token", -1, "token_time"))
    whole, path = request_path(reader)
    return replace(
        view,
        headlines=tuple(_headline(reader, fact) for fact in _HEADLINES),
        accounting=tuple(_part(reader, name, total) for name in _PARTS),
        token_time=total,
        request_path=path,
        request_time=whole,
    )


def _headline(reader: Reader, fact: Fact) -> Headline:
    now = reader.now(fact.signal, fact.name in _SLOW)
    if isinstance(now, Missing) and fact.signal in _INSTEAD and now.reason != "measuring":
        other = _INSTEAD[fact.signal]
        instead = reader.now(other.signal)
        if isinstance(instead, Reading):
            return reader.compared(other, instead)
    return reader.compared(fact, now)


def _part(reader: Reader, name: str, total: Headline) -> Share:
    """One part of a decode step; all of them sum to one with what is unaccounted."""
    now, was = reader.now(f"{name}_share"), reader.was(f"{name}_share")
    base, label = was.value if isinstance(was, Reading) else None, _LABELS.get(name, name)
    if isinstance(now, Missing):
        return Share(name, label, now, base)
    return Share(name, label, now.value, base, now.value * total.now.value if isinstance(total.now, Reading) else None)


def request_path(reader: Reader) -> tuple[Headline, tuple[Share, ...]]:
    """Queue, prefill and decode as shares of the mean request; decode is what the other two leave."""
    total = reader.fact(Fact("One request", "e2e_mean_s", -1, "request_time"), slow=True)
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
    help="What limits it, its vital signs, findings, charts.",
    charts=(
        Chart("Throughput and memory", (("throughput",), ("kv_memory",))),
        Chart("Sparse hit rate", (("sparse_hit_rate",),)),
        Chart("Hot and cold reads", (("hot_reads", "cold_reads"),)),
    ),
    layers=True,
    more=_more,
)
