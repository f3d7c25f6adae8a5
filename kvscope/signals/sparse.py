"""Sparsity: how much of the KV decode really reads, against what it was asked to read."""

from __future__ import annotations

from kvscope.signals.algebra import Clip, OverCells, first_of, ratio, setting, share
from kvscope.signals.registry import DOWN, NEITHER, declare

_READ, _TOTAL = "sparse.entries_read", "sparse.entries_total"
_NO_READS = "decode read no KV entries in this segment"

_hit_rate = declare(
    "sparse_hit_rate",
    share(_READ, _TOTAL, _NO_READS),
    DOWN,
    "KV entries decode read / entries it would have read without a policy.",
    label="entries read",
)
_kept = declare(
    "kept_share_target",
    setting("sparse.kept_share_target"),
    NEITHER,
    "Share of the entries a decode step is asked to read.",
)
declare(
    "hit_rate_over_target",
    _hit_rate / _kept,
    DOWN,
    "Sparse hit rate / kept share asked for: far above 1 the policy is not doing its work.",
    unit="x",
)
_layer_read = declare(
    "layer_read_share",
    share("sparse.layer_entries_read", "sparse.layer_entries_total", _NO_READS),
    NEITHER,
    "KV entries decode read / entries that are there, of those told by layer.",
    label="share read",
)
declare(
    "layer_hit_rate_spread",
    OverCells(_layer_read, "layer", "spread"),
    NEITHER,
    "Highest less lowest sparse hit rate of a layer: near 0 all layers behave alike.",
    label="layer spread",
)
declare(
    "entries_read_per_token",
    ratio(_READ, "tokens.generated", "entries", "no token was generated"),
    DOWN,
    "KV entries decode read per output token, mean over layers.",
)
_cost = ratio("sparse.index_time", "time.attend", "x", "no time of attention")
declare(
    "selection_over_saved",
    # Attention takes as long as it reads: what is skipped would have taken in proportion.
    first_of(_cost / Clip(1 / _hit_rate - 1, 0.0), says=("inferred: attention in proportion to reads",)),
    DOWN,
    "Time to choose blocks / attention time that reading only those saves: above 1 choosing costs more.",
    unit="x",
)
