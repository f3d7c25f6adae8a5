"""Test data: diagnoses that between them show every part of a report. Numbers are made."""

from __future__ import annotations

from dataclasses import replace

from kvscope.finding import Diagnosis, Evidence, Experiment, Finding, Gain, Rival, SegmentSummary, Unknown

RING = "measured: step rows"

MEMORY = Evidence(
    "memory",
    "kv_resident_bytes",
    "down at least 15%",
    "yes",
    330e6,
    4e6,
    "B",
    1.1e9,
    9e6,
    -0.7,
    0.004,
    RING,
    20,
    "symptom",
)
FLAT = Evidence(
    "throughput",
    "generation_tokens_per_s",
    "not up by 10%",
    "yes",
    512.0,
    6.0,
    "1/s",
    520.0,
    7.0,
    -0.015,
    0.018,
    RING,
    20,
    "symptom",
)
ACCESS = Evidence(
    "access_rose",
    "access_share",
    "up at least 10pp",
    "yes",
    0.412,
    0.006,
    "ratio",
    0.05,
    0.002,
    0.362,
    0.0063,
    RING,
    20,
    points=True,
)
WAITING = Evidence(
    "waiting", "waiting_requests", ">= 1 in both segments", "yes", 11.8, 0.9, "requests", source=RING, batches=20
)
LINEAR = Evidence("linear", "linear_share", "<= 0.5", "no", 0.556, 0.01, "ratio", source=RING, batches=20)
CONTEXT = Evidence(
    "context",
    "context_tokens_mean",
    "not up by 10%",
    "unknown",
    missing="no source reports batch.context_tokens",
    remedy="attach to the engine's flight recorder",
)
PREDICTED = Evidence(
    "faster", "generation_tokens_per_s", "up at least 25%", "unknown", unit="1/s", baseline=512.0, role="prediction"
)
FOUND = Finding(
    id="memory-down-throughput-flat",
    title="KV memory fell, throughput did not rise",
    verdict="possible",
    slug="index_access_bound",
    cause="decode reads fewer KV bytes, but spends what it saved on reaching them",
    evidence=(MEMORY, FLAT, ACCESS),
    rivals=(
        Rival("too_little_load", "nothing was waiting, so freed memory had no work to take", "excluded", WAITING),
        Rival(
            "weights_bound", "reading and multiplying weights takes the step", "open", LINEAR, "decode-weights-bound"
        ),
        Rival("longer_context", "requests carry more context than before", "unmeasured", CONTEXT),
    ),
    gain=Gain("decode time", 1.4, 1.7, "access_share"),
    experiment=Experiment(
        "read KV blocks in place, nothing else",
        ("policy", "workload"),
        "kvscope mark after",
        (("kernels", "block"),),
        (PREDICTED,),
    ),
    fix=(
        "use kernels that read the chosen blocks in place (no gather)",
        "choose blocks by one representative per block",
    ),
    explains=("tpot-flat",),
    onset_s=1_790_000_300.0,
    baseline="dense",
    current="compressed",
)
FOLDED = Finding(
    "tpot-flat",
    "Each output token costs what it did",
    "likely",
    "index_access_bound",
    "the same",
    explained_by="memory-down-throughput-flat",
)
UNDECIDED = Finding(
    "tiers",
    "Decode waits for cold blocks",
    "needs_data",
    "tier",
    "cold reads",
    notes="no source reports tier.cold_accesses; start with --kv-transfer-config",
)
SILENT = Finding("preempting", "Requests are thrown out", "silent", "kv_too_small", "the pool is too small")
SEGMENTS = (
    SegmentSummary(
        "dense", 1_790_000_000.0, 1_790_000_060.0, {"kernels": "generic"}, {"access_share": (0.05, 0.002, "ratio")}
    ),
    SegmentSummary("compressed", 1_790_000_300.0, 1_790_000_900.0, {"kernels": "generic", "policy": "block"}),
)
SOURCE = {"kind": "ring", "target": "/run/engine-1-2.ring", "engine": "kvscope", "version": "0.1", "note": "pid 1"}
UNKNOWN = (Unknown("context_tokens_mean", "no source reports batch.context_tokens", "attach to the flight recorder"),)

FULL = Diagnosis(
    SOURCE, SEGMENTS, (FOUND, FOLDED, UNDECIDED, SILENT), UNKNOWN, ("the engine restarted: its start time changed",)
)
BLIND = Diagnosis(
    {"kind": "vllm", "target": "http://host:8000/metrics", "engine": "vllm"}, SEGMENTS[:1], (UNDECIDED,), UNKNOWN
)
QUIET = Diagnosis(SOURCE, SEGMENTS[:1], (SILENT,))
AFTER = replace(
    FULL,
    findings=(
        replace(
            FOUND,
            verdict="confirmed",
            evidence=(
                *FOUND.evidence,
                replace(
                    PREDICTED,
                    answer="yes",
                    value=700.0,
                    error=9.0,
                    change=0.367,
                    change_error=0.02,
                    source=RING,
                    batches=20,
                ),
            ),
            experiment=None,
        ),
    ),
)
CASES = {"full": FULL, "blind": BLIND, "quiet": QUIET, "after": AFTER}
SUFFIX = {"text": "txt", "markdown": "md", "json": "json", "html": "html", "sarif": "sarif", "junit": "xml"}
