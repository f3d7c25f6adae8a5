"""KV usage falls from 62 to 22 %, throughput stays, tokens get slower, 9 GB/s of KV flow to the device, six wait.

On vLLM's own names, of HiSparse and of offloading; marked, unmarked, in a step and in a ramp. Nine other tools called
it a queue, a slow first token, or nothing.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kvscope.diagnose import diagnose
from kvscope.finding import Diagnosis
from kvscope.playbook import load_all
from kvscope.sources import open_target
from kvscope.sources.source import Mark
from kvscope.store import Store

SECONDS = 90
BYTES = {
    "hisparse": "vllm:hisparse_host_to_device_bytes_total",
    "offload": 'vllm:kv_offload_load_bytes_total{transfer_type="CPU_to_GPU"}',
}
Course = Callable[[int], float]


def step(t: int) -> float:
    return 0.0 if t < SECONDS // 2 else 1.0


def ramp(t: int) -> float:
    return t / SECONDS


def pages(kind: str, course: Course, *, load: float = 9e9) -> list[str]:
    """One page a second; ``course`` goes from 0 (before) to 1 (after)."""
    found, moved, tokens, spent = [], 1e12, 1e6, 5000.0
    for t in range(SECONDS):
        at = course(t)
        moved += load * at
        tokens += 900
        spent += 3 * 300 * (0.030 + 0.012 * at)
        found.append(
            f"vllm:kv_cache_usage_perc {0.62 - 0.40 * at + 0.003 * (t % 3)}\n"
            f"vllm:num_requests_running 24\nvllm:num_requests_waiting 6\nvllm:num_preemptions_total 0\n"
            f"vllm:generation_tokens_total {tokens}\n{BYTES[kind]} {moved}\n"
            f"vllm:inter_token_latency_seconds_sum {spent}\nvllm:inter_token_latency_seconds_count {tokens}\n"
        )
    return found


def judged(tmp_path: Path, texts: list[str], *, marked: bool) -> Diagnosis:
    path = tmp_path / "pages.jsonl.gz"
    rows = [json.dumps({"t": 1000.0 + t, "text": text}) for t, text in enumerate(texts)]
    path.write_bytes(gzip.compress(("\n".join(rows) + "\n").encode()))
    source, store = open_target(str(path)), Store()
    store.add(source.poll().samples)
    for name, t in (("before", 1000.0), ("after", 1000.0 + SECONDS // 2)) if marked else ():
        same = ("engine", "version", "model", "device", "workload", "offered_load")
        store.mark(Mark(name, t, dict.fromkeys(same, "same")))
    return diagnose(store, load_all(), source.describe())


@pytest.mark.parametrize("kind", BYTES)
@pytest.mark.parametrize(("course", "marked"), [(step, True), (step, False), (ramp, False)])
def test_access_is_named_with_its_bytes_and_nothing_else_comes_first(
    tmp_path: Path, kind: str, course: Course, marked: bool
) -> None:
    found = judged(tmp_path, pages(kind, course), marked=marked)
    first = found.findings[0]
    assert (first.slug, first.verdict in ("likely", "possible")) == ("kv_access_transfer_bound", True)
    seen = {one.signal: one for one in first.evidence}
    assert seen["tier_load_bytes_per_s"].answer == "yes"
    assert all(rival.state != "open" for rival in first.rivals)
    assert any("device_buffer_size" in step_ for step_ in first.fix)


def test_without_the_traffic_it_is_not_claimed(tmp_path: Path) -> None:
    found = judged(tmp_path, pages("hisparse", step, load=1e6), marked=True)
    assert not any(one.slug == "kv_access_transfer_bound" and one.verdict == "likely" for one in found.findings)


def test_a_counter_in_jumps_comes_first_because_its_rate_is_not_the_traffic(tmp_path: Path) -> None:
    texts = pages("hisparse", lambda t: float(t == SECONDS // 2), load=5e11)
    found = judged(tmp_path, texts, marked=False)
    assert found.findings[0].id == "metric-sampled-in-jumps"
