"""Test data: constructed views, no engine behind them. Numbers are plausible and nothing more."""

from __future__ import annotations

import math

from kvscope.finding import Diagnosis, Evidence, Experiment, Finding, Gain, Rival, Unknown
from kvscope.signals.reading import Missing, Reading
from kvscope.view import Headline, HeatMap, Share, Span, Trend, View

NOW_S = 1_700_000_000.0
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
            "kv_memory",
            "KV memory",
            Reading(71.3 * mib, 0.4 * mib, "B"),
            Reading(188.0 * mib, mib, "B"),
            -0.621,
            -1,
            sure=True,
        ),
        Headline("throughput", "Throughput", Reading(412.0, 9.0, "1/s"), Reading(405.0, 8.0, "1/s"), 0.017, 1),
        Headline("ttft", "TTFT p50", Reading(1.24, 0.11, "s"), Reading(1.19, 0.1, "s"), 0.042, -1),
        Headline("tpot", "TPOT p50", Reading(0.0243, 0.0004, "s"), Reading(0.0221, 0.0003, "s"), 0.0995, -1, sure=True),
        Headline("running", "Running", Reading(16.0, 0.0, "requests"), Reading(16.0, 0.0, "requests"), 0.0, 0),
        Headline("waiting", "Waiting", Reading(8.4, 0.6, "requests"), Reading(8.1, 0.7, "requests"), 0.037, -1),
        Headline(
            "accuracy",
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
    return Trend(name, label, unit, points, target, level if after != 1.0 else None, (SIGNALS[name],), 1.0)


SIGNALS = {
    "throughput": "generation_tokens_per_s",
    "kv_memory": "kv_resident_bytes",
    "sparse_hit_rate": "sparse_hit_rate",
    "hot_reads": "hot_access_share",
    "cold_reads": "tier_switches_per_token",
}


def trends() -> dict[str, Trend]:
    """Every line the panels draw."""
    lines = (
        trend("throughput", "throughput", "1/s", 405, 14, after=1.02),
        trend("kv_memory", "KV memory", "B", 188 * 2**20, 2 * 2**20, after=0.38),
        trend("sparse_hit_rate", "entries read", "ratio", 0.31, 0.02, target=0.25),
        trend("hot_reads", "hot", "1/s", 8200, 400, after=0.5),
        trend("cold_reads", "cold", "1/s", 1400, 200, after=4),
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


def evidence(signal: str, says: str, **more: object) -> Evidence:
    """A check that was answered yes unless told otherwise."""
    return Evidence(**{"check": signal, "signal": signal, "says": says, "answer": "yes", **more})  # type: ignore[arg-type]


def flagship() -> Finding:
    """The finding the tool was made for, with every field filled."""
    rows = {"source": "measured: step rows", "batches": 12}
    return Finding(
        id="memory-down-throughput-flat",
        title="KV memory fell, throughput did not move",
        verdict="likely",
        slug="sparse_access_overhead",
        cause="finding and collecting the KV to read takes 58 % of a decode step: it ate what the smaller reads saved",
        evidence=(
            evidence(
                "kv_resident_bytes",
                "down at least 15 %",
                value=71.3 * 2**20,
                error=0.4 * 2**20,
                unit="B",
                baseline=188.0 * 2**20,
                baseline_error=2.0**20,
                change=-0.621,
                change_error=0.003,
                role="symptom",
                **rows,
            ),
            evidence(
                "generation_tokens_per_s",
                "not up by 10 %",
                value=412.0,
                error=9.0,
                unit="1/s",
                baseline=405.0,
                baseline_error=8.0,
                change=0.017,
                change_error=0.03,
                role="symptom",
                **rows,
            ),
            evidence(
                "access_share",
                "at least 0.30",
                value=0.58,
                error=0.012,
                unit="ratio",
                baseline=0.12,
                baseline_error=0.01,
                change=0.46,
                change_error=0.016,
                **rows,
            ),
        ),
        rivals=(
            Rival(
                "load",
                "too little load: nothing waited for the freed memory",
                "excluded",
                evidence("waiting_requests", "at least 1", value=8.4, error=0.6, unit="requests", **rows),
            ),
            Rival(
                "host",
                "the host could not prepare steps fast enough",
                "excluded",
                evidence("host_share", "at most 0.20", value=0.05, error=0.004, unit="ratio", **rows),
            ),
            Rival(
                "static",
                "admission still counts uncompressed bytes",
                "open",
                evidence(
                    "running_requests",
                    "up at least 10 %",
                    answer="no",
                    value=16.0,
                    error=0.0,
                    unit="requests",
                    change=0.0,
                ),
                look="memory-down-concurrency-flat",
            ),
            Rival(
                "compute",
                "the device's arithmetic was already full",
                "unmeasured",
                evidence(
                    "gpu_util_share",
                    "at most 0.80",
                    answer="unknown",
                    missing="no source reports gpu.util",
                    remedy="run kvscope on the machine with the GPU, with nvidia-ml-py installed",
                ),
            ),
        ),
        gain=Gain("throughput", 1.8, 2.4, "access_share"),
        experiment=Experiment(
            change="attention kernels generic → block, nothing else",
            hold=("policy", "kept share", "load", "seed"),
            run="kvscope run --set kernels=block --mark after",
            set=(("kernels", "block"),),
            predict=(
                evidence("access_share", "down at least 10 points", answer="unknown"),
                evidence("generation_tokens_per_s", "up at least 20 %", answer="unknown"),
            ),
        ),
        fix=(
            "read blocks in place with the block kernel; no gather. Costs nothing; back with kernels=generic",
            "score representatives every 4 steps instead of every step; check right_token_share",
        ),
        onset_s=NOW_S - 65,
        baseline="full",
        current="sparse",
    )


def other(verdict: str, title: str, id: str) -> Finding:
    """A smaller finding of any verdict."""
    return Finding(
        id,
        title,
        verdict,
        id.replace("-", "_"),
        "cold blocks are fetched again and again",  # type: ignore[arg-type]
        evidence=(evidence("hot_access_share", "at most 0.90", value=0.42, error=0.01, unit="ratio"),),
        gain=Gain("TPOT", None, 1.2),
        fix=("give the hot tier half as many blocks again",),
    )


def diagnosis() -> Diagnosis:
    """Five findings of five verdicts, and two unknowns."""
    return Diagnosis(
        source={"kind": "builtin", "target": "built-in engine"},
        segments=(),
        findings=(
            flagship(),
            other("possible", "Each output token got slower: cold blocks", "tpot-up-tier-switching"),
            other("unexplained", "Accuracy fell by more than a point", "accuracy-down"),
            other("needs_data", "Prefix cache thrashes", "prefix-thrash"),
            other("refuted", "The host limits the step rate", "host-bound"),
        ),
        unknown=(
            Unknown("gpu_util_share", "no source reports gpu.util", "install nvidia-ml-py on the engine's machine"),
            Unknown("prefix_hit_rate", "no source reports prefix.queries"),
        ),
    )


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
    names = ("throughput", "kv_memory", "sparse_hit_rate", "hot_reads", "cold_reads")
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
