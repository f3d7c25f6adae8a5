"""Which flag of which engine would supply a metric that nobody reports; read in the engines' sources and documents."""

from __future__ import annotations

from kvscope.store import Store

_TRACE = "a profiler trace of a few steps (kvscope diagnose TRACE.json), or probes inside the engine"
NOBODY = "no flag of this engine: "
"""How a remedy begins that is none."""
_STATED = "an engine that reports {}, or a figure of that name (kvscope figures new)"
SETTINGS = "the server's log (--with server.log), kvscope on the engine's machine, or --set NAME=VALUE"

REMEDIES: dict[str, dict[str, str]] = {
    "block.": {
        "vllm": "--kv-cache-metrics (and --kv-cache-metrics-sample 1.0 to see every block)",
        "sglang": NOBODY + "KV events (--kv-events-config) tell when blocks come and go",
    },
    "tier.": {
        "vllm": "a KV connector (--kv-offloading-size, or --kv-transfer-config); without one there is no second tier",
        "sglang": "--enable-hierarchical-cache; without it there is no second tier",
        "tensorrt-llm": "enable_iter_perf_stats: true, with a host cache (kv_cache_config.host_cache_size)",
    },
    "kv.resident_bytes": {
        "vllm": "--kv-cache-memory-bytes: the page then tells the pool's bytes (not under --num-gpu-blocks-override)",
        "sglang": "SGLang 0.5.19 or newer, with --enable-metrics",
    },
    "kv.reserved_bytes": {
        "vllm": "--kv-cache-memory-bytes: the page then tells the pool's bytes (not under --num-gpu-blocks-override)",
        "sglang": "SGLang 0.5.19 or newer, with --enable-metrics",
    },
    "kv.bytes_per_layer": {"": "probes.attach_transformers or probes.attach_vllm inside the engine's process"},
    "kv.capacity_tokens": {"llama.cpp": "--slots"},
    "kv.usage_ratio": {
        "llama.cpp": "--slots, in a build that tells each slot's prompt",
        "tgi": NOBODY + "a budget only",
    },
    "latency.": {
        "tensorrt-llm": "return_perf_metrics: true",
        "sglang": "--enable-metrics",
        "llama.cpp": NOBODY + "each response carries its timings",
    },
    "sched.max_running": {
        "vllm": "run kvscope on the engine's machine: it reads --max-num-seqs on the command line",
        "sglang": "run kvscope on the engine's machine: it reads --max-running-requests on the command line",
    },
    "prefix.": {"llama.cpp": NOBODY + "each response carries tokens_cached"},
    "sparse.": {"vllm": "HiSparseConnector on a sparse-MLA model; " + _TRACE, "": _TRACE},
    "time.": {"": _TRACE},
    "decompress.": {"": _TRACE},
    "prefill.": {"": _TRACE},
    "gpu.": {"": "NVML on the engine's machine (pip install 'kvscope[gpu]'), or a DCGM exporter's address beside it"},
    "host.": {"": "run kvscope on the engine's machine"},
    "config.price_per_hour": {"": SETTINGS},
    "config.": {"": SETTINGS},
    "kernel.": {"": _TRACE},
    "compile.": {"": _TRACE},
    "alloc.": {"": _TRACE},
    "quality.": {"": "an evaluation with known answers; the built-in engine checks its own tokens (workload recall)"},
    "prefix.reusable": {
        "vllm": "KV events (--kv-events-config): a hash that is stored again had been evicted",
        "sglang": "KV events (--kv-events-config): a hash that is stored again had been evicted",
        "": "KV events, or the client's own prompts",
    },
    "prefix.working_set_tokens": {"": "KV events, or the client's own prompts"},
    "prefix.full_recomputes": {"llama.cpp": "the server's log: each full re-processing is said there"},
    "quality.falls_after_load": {
        "": "the same prompts asked twice, once with the slower tier off: which of the answers got worse"
    },
    "kv.retained_bytes": {"": "memory held when all requests have ended, stated as a figure (kvscope figures new)"},
    "rank.": {"": "one recorder for each rank"},
    "transfer.": {"": "the transfer library's own counters or a trace"},
}
"""Metric (or the start of its name, ending in a dot) → engine (empty: any) → what to turn on."""


def remedy(metric: str, store: Store) -> str:
    """Return what would supply ``metric`` from the engine whose samples these are."""
    engine = next((dict(labels).get("engine", "") for labels in store.keys("engine.info")), "")
    found = REMEDIES.get(metric) or REMEDIES.get(metric.partition(".")[0] + ".") or {}
    return found.get(engine) or found.get("") or _STATED.format(metric)
