"""Test data: constructed views, no engine behind them. Numbers are plausible and nothing more."""

from __future__ import annotations

import math

from kvscope.finding import Diagnosis, Unknown
from kvscope.signals.reading import Missing, Reading
from kvscope.state import State
from kvscope.view import Headline, HeatMap, Share, Span, Trend, View
from kvscope.vitals import Vital
from tests.tui.findings import NOW_S, diagnosis, other

UNSAID = Missing("this engine does not report it", "turn on its step probes")
_WINDOW_S = 120.0


def wave(index: int, period: float, size: float) -> float:
    """A repeatable wiggle."""
    return size * (math.sin(index / period) + 0.4 * math.sin(index / period * 2.7 + 1))


def headlines() -> tuple[Headline, ...]:
    """The header strip of a KV cache that shrank without the service getting faster."""
    mib = 2.0**20
    return (
        Headline(
            "kv_resident_bytes",
            "KV memory",
            Reading(71.3 * mib, 0.4 * mib, "B"),
            Reading(188.0 * mib, mib, "B"),
            -0.621,
            -1,
            sure=True,
        ),
        Headline(
            "generation_tokens_per_s", "Throughput", Reading(412.0, 9.0, "1/s"), Reading(405.0, 8.0, "1/s"), 0.017, 1
        ),
        Headline("ttft_p50_s", "TTFT p50", Reading(1.24, 0.11, "s"), Reading(1.19, 0.1, "s"), 0.042, -1),
        Headline(
            "tpot_p50_s", "TPOT p50", Reading(0.0243, 0.0004, "s"), Reading(0.0221, 0.0003, "s"), 0.0995, -1, sure=True
        ),
        Headline("running_requests", "Running", Reading(16.0, 0.0, "requests"), Reading(16.0, 0.0, "requests"), 0.0, 0),
        Headline(
            "waiting_requests", "Waiting", Reading(8.4, 0.6, "requests"), Reading(8.1, 0.7, "requests"), 0.037, -1
        ),
        Headline(
            "right_token_share",
            "Accuracy",
            Reading(0.978, 0.004, "ratio"),
            Reading(0.991, 0.003, "ratio"),
            -0.013,
            1,
            in_points=True,
            sure=True,
        ),
    )


def accounting() -> tuple[Share, ...]:
    """Nine parts that sum to one, now and at the baseline."""
    parts = (
        ("linear", "linear", 0.21, 0.24),
        ("attend", "attend", 0.11, 0.52),
        ("host", "host", 0.05, 0.06),
        ("sample", "sample", 0.02, 0.02),
        ("index", "index", 0.17, 0.0),
        ("gather", "gather", 0.34, 0.12),
        ("decompress", "decompress", 0.05, 0.0),
        ("transfer", "tier move", 0.02, 0.0),
        ("unaccounted", "unaccounted", 0.03, 0.04),
    )
    return tuple(Share(name, label, now, base, now * 0.0243) for name, label, now, base in parts)


def trend(
    name: str, label: str, unit: str, level: float, swing: float, target: float | None = None, after: float = 1.0
) -> Trend:
    """120 points with a change of level in the middle."""
    points = tuple(
        (NOW_S - _WINDOW_S + i + 0.5, max((level if i < 55 else level * after) + wave(i, 6, swing), 0.0))
        for i in range(120)
    )
    return Trend(name, label, unit, points, target, level if after != 1.0 else None, (name,), 1.0)


def trends() -> dict[str, Trend]:
    """Every line the panels draw."""
    lines = (
        trend("generation_tokens_per_s", "generation_tokens_per_s", "1/s", 405, 14, after=1.02),
        trend("kv_resident_bytes", "KV memory", "B", 188 * 2**20, 2 * 2**20, after=0.38),
        trend("sparse_hit_rate", "entries read", "ratio", 0.31, 0.02, target=0.25),
        trend("hot_reads_per_s", "hot", "1/s", 8200, 400, after=0.5),
        trend("cold_reads_per_s", "cold", "1/s", 1400, 200, after=4),
    )
    return {line.name: line for line in lines}


def layers(count: int = 64) -> HeatMap:
    """Uneven layers; a hole in the data at bins 20 to 23."""
    times = tuple(NOW_S - _WINDOW_S + 2 * i + 1 for i in range(60))
    rows = tuple(
        tuple(
            None
            if 20 <= i < 23
            else 2**20 * (3 if i < 28 else 1.1) * (1 + 0.5 * math.sin(layer / 7) + 0.1 * math.sin(i / 3 + layer))
            for i in range(60)
        )
        for layer in range(count)
    )
    return HeatMap("KV bytes per layer", "B", times, rows)


def full_view(layer_count: int = 64, **more: object) -> View:
    """Everything known."""
    fields: dict[str, object] = {
        "target": "built-in engine",
        "kind": "builtin",
        "now_s": NOW_S,
        "alive": True,
        "tags": {"model": "recall-5m", "device": "cpu", "policy": "block", "kernels": "generic"},
        "headlines": headlines(),
        "accounting": accounting(),
        "trends": trends(),
        "layers": layers(layer_count),
        "segments": (
            Span("full", NOW_S - 140, NOW_S - 65, is_baseline=True),
            Span("sparse", NOW_S - 65, NOW_S, is_current=True),
        ),
        "diagnosis": diagnosis(),
        "state": State("found", diagnosis().findings[0].title),
        "vitals": (Vital("load", "load", (("running 16", ""), ("waiting 8.4", ""))),),
        "can_apply": True,
        "knobs": {"kernels": "generic"},
        "token_time": Headline(
            "token_time", "One output token", Reading(0.0243, 0.0004, "s"), Reading(0.0221, 0.0003, "s"), 0.1, -1
        ),
        "window": (NOW_S - _WINDOW_S, NOW_S),
        "playbooks": 14,
    }
    return View(**{**fields, **more})  # type: ignore[arg-type]


def empty_view() -> View:
    """The first tick: nothing read yet."""
    return View(
        target="http://localhost:8000/metrics", kind="vllm", now_s=NOW_S, alive=True, status="Reading: first samples"
    )


def missing_view() -> View:
    """An engine that says nothing of what the panels show."""
    names = ("generation_tokens_per_s", "kv_resident_bytes", "sparse_hit_rate", "hot_reads_per_s", "cold_reads_per_s")
    return View(
        target="http://localhost:8000/metrics",
        kind="vllm",
        now_s=NOW_S,
        alive=True,
        headlines=tuple(Headline(h.name, h.label, UNSAID, UNSAID, None, h.better) for h in headlines()),
        accounting=tuple(Share(part.name, part.label, UNSAID) for part in accounting()),
        trends={name: Trend(name, name, "", UNSAID) for name in names},
        layers=HeatMap("KV bytes per layer", "B", (), UNSAID),
        segments=(Span("all", NOW_S - 60, NOW_S, is_current=True),),
        diagnosis=Diagnosis(
            {},
            (),
            (other("needs_data", "KV memory fell, throughput did not move", "memory-down"),),
            (Unknown("kv_resident_bytes", "no source reports it", "run the engine with its probes on"),),
        ),
        token_time=Headline("token_time", "One output token", UNSAID),
        window=(NOW_S - 120, NOW_S),
        playbooks=14,
    )
