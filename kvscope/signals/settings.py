"""What an engine was told: settings that decide what can go wrong, alone or against what is measured."""

from __future__ import annotations

from kvscope.signals.algebra import Expr, first_of, gauge, mean_of, setting
from kvscope.signals.registry import DOWN, NEITHER, declare
from probes.catalog import CATALOG

_ELSEWHERE = {
    "kv.index_buffer_bytes": ("index_buffer_bytes", "Bytes of the buffer that scores every position."),
    "sched.max_running": ("running_limit", "Most requests the scheduler may run at once, as configured."),
    "kv.padding_share": ("kv_padding_share", "Share of the pool's pages that pads layers to a common size."),
}

for _metric, (_name, _help) in _ELSEWHERE.items():
    declare(_name, setting(_metric), NEITHER, _help)
for _metric, _line in CATALOG.items():
    if _metric.startswith("config.") and _line.kind == "gauge":
        declare(_metric.removeprefix("config."), setting(_metric), NEITHER, _line.help, unit=_line.unit)

_prompt = mean_of("request.tokens_in")


def _against(name: str, expr: Expr, help: str, unit: str = "x") -> None:
    declare(name, expr, DOWN, help, unit=unit)


_against(
    "kv_replication_factor",
    setting("config.tensor_parallel") / setting("config.kv_heads"),
    "Ranks that a layer is split over / its KV heads: above 1 ranks hold copies of the same KV.",
)
_against(
    "running_over_graph_batch",
    gauge("sched.running") / setting("config.graph_max_batch"),
    "Running requests / the largest batch for which a graph was captured: above 1 steps run without a graph.",
)
_against(
    "prompt_over_alignment",
    _prompt / setting("config.prefix_alignment"),
    "Prompt tokens of a request / the multiple in which prefixes are cached: below 1 nothing can be cached.",
)
_against(
    "chunks_per_prompt",
    _prompt / setting("config.max_batched_tokens"),
    "Steps that a prompt's prefill takes at the tokens a step may compute.",
    "steps",
)
_against(
    "topk_over_prompt",
    setting("config.sparse_topk") / _prompt,
    "Tokens sparse attention reads / prompt tokens: near 1 there is nothing to leave out.",
)
_against(
    "longest_that_fit",
    setting("kv.capacity_tokens") / setting("config.max_context"),
    "Tokens the pool can hold / longest context of a request: how many of the longest fit at once.",
)
_against(
    "kv_type_unsupported",
    first_of(
        setting("config.kv_type_off_path"),
        setting("config.host_fallback") * (16.0 / setting("config.kv_bits") - 1.0),
        says=("", "inferred: the host computes what the device has no kernel for, and KV is not of 16 bits"),
    ),
    "1 where the device has no attention kernel for the KV's types; else, where the host takes over, by how "
    "much a token's KV is smaller than in 16 bits.",
)
_INDEX_ROW, _LATENT_ROW = 132.0, 656.0
"""Bytes of a token in DeepSeek's index (128 numbers of 8 bits, one scale) and of a latent row of 8 bits with RoPE."""
_scored = _prompt * _INDEX_ROW
declare(
    "index_read_share",
    first_of(
        gauge("index.read_share"),
        _scored / (_scored + setting("config.sparse_topk") * _LATENT_ROW),
        says=("", "inferred: 132 bytes of index a token of context, 656 bytes for each token that is chosen"),
    ),
    DOWN,
    "Share of the KV bytes a decode step reads that is index keys: they grow with the context, what is chosen not.",
    unit="ratio",
)
