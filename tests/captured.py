"""Recordings cut from captures of real servers: what one playbook reads, and no more scrapes than it needs.

``KVSCOPE_CAPTURES=DIR python -m tests.captured`` writes them anew.
"""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

from kvscope import signals
from kvscope.playbook import load_all
from kvscope.recording import write_fixture
from kvscope.sources import open_target
from probes.sample import Sample

ROOT = Path(__file__).resolve().parent.parent
CUTS = {
    "kv-short-with-preemption.likely.vllm": ("07_kv_too_small_preempt", "kv-short-with-preemption", 3),
    "prefill-bound.possible.vllm": ("06a_prefill_dominated", "prefill-bound", 4),
    "prefill-holds-up-decode.likely.vllm": ("05_mixed_longtail", "prefill-holds-up-decode", 8),
    "client-bound.likely.vllm": ("04a_client_bound_think", "client-bound", 3),
    "tier-serves-prefixes.possible.vllm": ("13_external_kv_connector", "tier-serves-prefixes", 3),
}
"""Recording → capture, the playbook whose signals are kept, and of how many scrapes one is kept."""


def cut(capture: Path, target: Path, keep: set[str], every: int) -> None:
    """Write one recording from a capture."""
    with closing(open_target(str(capture / "pages.jsonl.gz"))) as source:
        samples, description = source.poll().samples, source.describe()
    times = sorted({sample.t for sample in samples})[::every]
    chosen = set(times)
    kept = [
        Sample(one.metric, one.value, round(one.t - times[0] + 1000.0, 2), one.labels)
        for one in samples
        if one.t in chosen and _stem(one.metric) in keep and (".bucket" not in one.metric or keep_bucket(one.metric))
    ]
    about = {"kind": "series", "engine": "vllm", "version": "0.32.0", "target": f"vLLM 0.32.0 on a CPU, {capture.name}"}
    write_fixture(target, kept, source=about, tags=description.tags, synthetic=False)


def keep_bucket(metric: str) -> bool:
    """Only the tails of these two are read from buckets."""
    return metric in ("latency.ttft.bucket", "request.tokens_in.bucket")


def _stem(metric: str) -> str:
    return metric.removesuffix(".bucket").removesuffix(".sum").removesuffix(".count")


def main() -> None:
    """Write every cut."""
    folder, rules = Path(os.environ["KVSCOPE_CAPTURES"]), {rule.id: rule for rule in load_all()}
    for name, (capture, playbook, every) in CUTS.items():
        keep = {metric for signal in rules[playbook].signals() for metric in signals.describe(signal)[2]}
        cut(folder / capture, ROOT / "samples/recordings" / f"{name}.jsonl", keep, every)


if __name__ == "__main__":
    main()
