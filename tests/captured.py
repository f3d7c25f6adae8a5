"""Recordings cut from captures of real servers: what rules read, and no more scrapes than they need.

``KVSCOPE_CAPTURES=DIR python -m tests.captured`` writes them anew. A comparison has the baseline's capture in front.
"""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from kvscope.recording import write_fixture
from kvscope.sources import open_target
from kvscope.sources.source import Mark
from probes.sample import Sample

ROOT = Path(__file__).resolve().parent.parent
ROWS, BUCKET_ROWS = 34, 5
"""Scrapes kept of a capture, and of its histograms' buckets."""
CORE = (
    *("engine.info", "sched.running", "sched.waiting", "sched.preemptions", "sched.rejections", "sched.max_running"),
    *("kv.usage_ratio", "kv.capacity_tokens", "kv.block_size", "config.kv_bits"),
    *("batch.steps", "batch.tokens_per_step.sum", "tokens.generated", "tokens.prefilled", "tokens.prompt"),
    *("prefix.queries", "prefix.hits", "latency.itl.sum", "latency.itl.count", "latency.ttft.count"),
    *("latency.prefill_time.sum", "latency.decode_time.sum", "sched.queue_time.sum", "latency.e2e.sum"),
    *("latency.e2e.count", "requests.finished", "request.tokens_in.sum", "request.tokens_in.count"),
    *("request.tokens_out.sum", "request.tokens_out.count"),
)
"""What the account reads, and most rules with it."""
SMALL = tuple(one for one in CORE if not one.startswith(("prefix.", "requests.", "tokens.prompt", "latency.e2e")))
TRACE = (
    *("engine.info", "time.attend", "time.linear", "time.decode", "time.step", "time.prefill"),
    *("batch.decode_steps", "batch.steps", "tokens.generated", "config.kv_bits"),
)


class Cut(NamedTuple):
    """A recording of a capture's ``file``: which metrics, and what it is compared with."""

    capture: str
    baseline: str = ""
    metrics: tuple[str, ...] = CORE
    buckets: tuple[str, ...] = ()
    file: str = "pages.jsonl.gz"


TAILS = ("latency.ttft", "request.tokens_in")
GAPS = ("latency.itl",)
CUTS = {
    "kv-short-with-preemption.likely.vllm": Cut("07_kv_too_small_preempt"),
    "kv-short-with-preemption.likely.h200": Cut("gpu_kv_small_preempt"),
    "kv-short-with-queue.likely.vllm": Cut("12_kv_full_queueing"),
    "prefill-bound.possible.vllm": Cut("06a_prefill_dominated"),
    "prefill-bound.likely.vllm": Cut("cpu_vllm_long_prefill"),
    "prefill-stalls-tokens.likely.vllm": Cut("cpu_vllm_long_prefill", buckets=GAPS),
    "prefill-stalls-tokens.silent.vllm-preempts": Cut("07_kv_too_small_preempt", buckets=GAPS),
    "rejected-at-the-door.likely.vllm": Cut("16_queue_limit_rejections"),
    "admission-capped.possible.llamacpp": Cut(
        "cpu_llamacpp_slots_cap", metrics=(*CORE, "time.decode_requests", "time.prefill_requests")
    ),
    "admission-capped.possible.dynamo": Cut("cpu_dynamo_cap"),
    "kv-smaller-decode-slower.possible.h200": Cut("gpu_decode_fp8", "gpu_decode_bf16", SMALL),
    "attention-slower-low-bit.likely.h200": Cut("gpu_decode_fp8", "gpu_decode_bf16", TRACE, (), "trace.json.gz"),
    "attention-slower-low-bit.silent.h200": Cut("gpu_decode_bf16", "gpu_decode_fp8", TRACE, (), "trace.json.gz"),
    "kv-smaller-decode-slower.silent.h200": Cut("gpu_decode_bf16", "gpu_decode_fp8", SMALL),
    "prefill-holds-up-decode.likely.vllm": Cut(
        "05_mixed_longtail", metrics=(*CORE, "latency.ttft.sum", "sched.queue_time.count"), buckets=TAILS
    ),
    "client-bound.likely.vllm": Cut(
        "04a_client_bound_think", metrics=(*CORE, "latency.ttft.sum", "sched.queue_time.count")
    ),
    "tier-serves-prefixes.possible.vllm": Cut(
        "13_external_kv_connector", metrics=(*CORE, "tier.hits", "tier.queries", "tier.failures")
    ),
}
"""Recording → what it is cut from."""


def cut(folder: Path, asked: Cut, target: Path) -> None:
    """Write one recording from one capture, or from two."""
    items: list[Sample | Mark] = []
    tags: dict[str, str] = {}
    for part, capture in (("baseline", asked.baseline), ("current", asked.capture)):
        if not capture:
            continue
        with closing(open_target(str(folder / capture / asked.file))) as source:
            samples, tags, engine = source.poll().samples, source.describe().tags, source.describe().engine
        rows = _kept(samples, asked)
        begins = 1000.0 if part == "baseline" or not asked.baseline else items[-1].t + 5.0
        first = min(sample.t for sample in rows)
        if asked.baseline:
            items.append(Mark(part, begins - 0.001, tags))
        items += [one._replace(t=round(one.t - first + begins, 3), value=_short(one.value)) for one in rows]
    about = {"kind": "series", "engine": engine, "version": tags.get("version", ""), "target": asked.capture}
    write_fixture(target, items, source=about, tags={} if asked.baseline else tags, synthetic=False)


def _kept(samples: list[Sample], asked: Cut) -> list[Sample]:
    times = sorted({one.t for one in samples if not one.metric.startswith("config.")})
    steps = {limit: max(1, -(-len(times) // limit)) for limit in (ROWS, BUCKET_ROWS)}
    chosen = {limit: {*times[::step], times[-1]} for limit, step in steps.items()}
    kept = []
    for one in samples:
        name = one.metric.removesuffix(".bucket")
        always = one.metric.startswith("config.") and one.metric in asked.metrics
        bucket = name != one.metric and name in asked.buckets and one.t in chosen[BUCKET_ROWS]
        if always or bucket or (one.metric in asked.metrics and one.t in chosen[ROWS]):
            kept.append(one)
    return sorted(kept, key=lambda one: one.t)


def _short(value: float) -> float:
    return float(f"{value:.6g}") if abs(value) < 1e6 else value


def main() -> None:
    """Write every cut."""
    folder = Path(os.environ["KVSCOPE_CAPTURES"])
    for name, asked in CUTS.items():
        cut(folder, asked, ROOT / "samples/recordings" / f"{name}.jsonl")


if __name__ == "__main__":
    main()
