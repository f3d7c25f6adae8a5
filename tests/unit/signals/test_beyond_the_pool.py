"""What is known beyond the pool: the tier behind it, residency, real work; and what would supply the rest."""

from __future__ import annotations

import pytest

from kvscope import signals
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.remedies import REMEDIES
from kvscope.store import Store
from probes.catalog import CATALOG
from probes.sample import Sample, labels_of


def store_of(engine: str = "vllm", seconds: int = 10, **rates: float) -> Store:
    """Ten seconds of counters that grow at these rates (gauges stand); dots are written as underscores twice."""
    store = Store()
    for t in range(seconds):
        store.add([Sample("engine.info", 1.0, float(t), labels_of(engine=engine))])
        for name, rate in rates.items():
            metric = name.replace("__", ".")
            known = CATALOG[metric.removesuffix(".sum").removesuffix(".count")]
            store.add([Sample(metric, rate if known.kind == "gauge" else rate * t, float(t))])
    return store


def told(store: Store, name: str) -> Reading | Missing:
    return signals.compute(name, store, store.segments[0])


@pytest.mark.parametrize(
    ("name", "rates", "value"),
    [
        ("tier_hit_rate", {"tier__hits": 30, "tier__queries": 100}, 0.3),
        ("tier_load_bytes_per_s", {"tier__bytes_in": 5e9}, 5e9),
        ("tier_store_bytes_per_s", {"tier__bytes_out": 1e9}, 1e9),
        ("tier_loads_per_store", {"tier__bytes_in": 0, "tier__bytes_out": 1e9}, 0.0),
        ("tier_load_bandwidth", {"tier__bytes_in": 5e9, "tier__load_time": 0.25}, 2e10),
        ("tier_failures_per_s", {"tier__failures": 3}, 3),
        ("block_idle_mean_s", {"block__idle__sum": 60, "block__idle__count": 10}, 6),
        ("kv_occupied_share", {"kv__used_tokens": 2, "kv__evictable_tokens": 70, "kv__free_tokens": 28}, 0.72),
        ("evicted_tokens_per_s", {"cache__evicted_tokens": 40}, 40),
        ("prefilled_tokens_per_s", {"tokens__prefilled": 40}, 40),
        ("prefilled_per_generated", {"tokens__prefilled": 40, "tokens__generated": 20}, 2),
        ("rejections_per_s", {"sched__rejections": 6}, 6),
        ("spec_accepted_share", {"spec__accepted_tokens": 6, "spec__draft_tokens": 10}, 0.6),
        ("busy_sample_share", {"sched__running": 1, "sched__waiting": 0}, 1.0),
        ("fetching_requests", {"sched__fetching": 2}, 2),
        ("gpu_memory_over_compute", {"gpu__mem_bw_util": 0.8, "gpu__tensor_active": 0.1}, 8),
        ("gpu_sm_share", {"gpu__sm_active": 0.6}, 0.6),
        ("gpu_tensor_share", {"gpu__tensor_active": 0.1}, 0.1),
        ("pcie_rx_bytes_per_s", {"gpu__pcie_rx": 2e9}, 2e9),
    ],
)
def test_a_signal_is_what_its_help_says(name: str, rates: dict[str, float], value: float) -> None:
    found = told(store_of(**rates), name)
    assert isinstance(found, Reading), found
    assert found.value == pytest.approx(value)
    assert found.unit == signals.describe(name)[0]


@pytest.mark.parametrize(
    ("engine", "name", "flag"),
    [
        ("vllm", "block_lifetime_mean_s", "--kv-cache-metrics"),
        ("vllm", "tier_hit_rate", "--kv-offloading-size"),
        ("sglang", "tier_hit_rate", "--enable-hierarchical-cache"),
        ("tensorrt-llm", "ttft_mean_s", "return_perf_metrics"),
        ("llama.cpp", "kv_usage_ratio", "--slots"),
        ("vllm", "index_share", "profiler trace"),
        ("vllm", "gpu_sm_share", "DCGM"),
        ("unheard-of", "preemptions_per_s", "reports sched.preemptions"),
    ],
)
def test_what_is_missing_names_what_would_supply_it(engine: str, name: str, flag: str) -> None:
    found = told(store_of(engine), name)
    assert isinstance(found, Missing)
    assert flag in found.remedy


def test_remedies_are_for_metrics_that_there_are() -> None:
    for name in REMEDIES:
        assert any(metric == name or metric.startswith(name) for metric in CATALOG), name
