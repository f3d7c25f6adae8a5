"""Test data: constructed findings, no engine behind them. Numbers are plausible and nothing more."""

from __future__ import annotations

from kvscope.finding import Diagnosis, Evidence, Experiment, Finding, Gain, Rival, Unknown

NOW_S = 1_700_000_000.0


def evidence(signal: str, says: str, **more: object) -> Evidence:
    """A check that was answered yes unless told otherwise."""
    return Evidence(**{"check": signal, "signal": signal, "says": says, "answer": "yes", **more})  # type: ignore[arg-type]


ROWS: dict[str, object] = {"source": "measured: step rows", "batches": 12}


def seen() -> tuple[Evidence, ...]:
    """Memory fell, throughput did not rise, access takes the step."""
    return (
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
            **ROWS,
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
            **ROWS,
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
            **ROWS,
        ),
    )


def rivals() -> tuple[Rival, ...]:
    """Two that a number excludes, one open, one unmeasured."""
    return (
        Rival(
            "load",
            "too little load: nothing waited for the freed memory",
            "excluded",
            evidence("waiting_requests", "at least 1", value=8.4, error=0.6, unit="requests", **ROWS),
        ),
        Rival(
            "host",
            "the host could not prepare steps fast enough",
            "excluded",
            evidence("host_share", "at most 0.20", value=0.05, error=0.004, unit="ratio", **ROWS),
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
    )


def experiment() -> Experiment:
    """The change the flagship proposes, not tried yet."""
    return Experiment(
        change="attention kernels generic → block, nothing else",
        hold=("policy", "kept share", "load", "seed"),
        run="kvscope run --set kernels=block --mark after",
        set=(("kernels", "block"),),
        predict=(
            evidence("access_share", "down at least 10 points", answer="unknown"),
            evidence("generation_tokens_per_s", "up at least 20 %", answer="unknown"),
        ),
    )


def flagship() -> Finding:
    """The finding the tool was made for, with every field filled."""
    return Finding(
        id="memory-down-throughput-flat",
        title="KV memory fell, throughput did not move",
        verdict="likely",
        slug="sparse_access_overhead",
        cause="finding and collecting the KV to read takes 58 % of a decode step: it ate what the smaller reads saved",
        evidence=seen(),
        rivals=rivals(),
        gain=Gain("throughput", 1.8, 2.4, "access_share"),
        experiment=experiment(),
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
            other("possible", "TPOT rose with tier switching: cold blocks", "tpot-up-tier-switching"),
            other("unexplained", "Accuracy fell by more than a point", "accuracy-down"),
            other("needs_data", "Prefix cache thrashes", "prefix-thrash"),
            other("refuted", "The host limits the step rate", "host-bound"),
        ),
        unknown=(
            Unknown("gpu_util_share", "no source reports gpu.util", "install nvidia-ml-py on the engine's machine"),
            Unknown("prefix_hit_rate", "no source reports prefix.queries"),
        ),
    )
