"""How much of the KV decode really reads, and is the answer still right: counted on tokens whose right value is known,
or scored by a benchmark.
"""

from __future__ import annotations

from kvscope.signals.algebra import Clip, OverCells, first_of, gauge, ratio, setting, share
from kvscope.signals.registry import DOWN, NEITHER, UP, declare

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


_UNCHECKED = "no generated token has a known right value"
_NOT_LOOKED = "no token's margin was looked at: knob margin_every of the built-in engine"
_NO_SHADOW = "no request was run again against the full cache: knob shadow_every of the built-in engine"
_LOOKED, _SHADOW = "quality.margin_tokens", "quality.shadow_tokens"

_right = declare(
    "right_token_share",
    share("quality.tokens_right", "quality.tokens_checked", _UNCHECKED),
    UP,
    "Generated tokens that were right / tokens whose right value is known.",
    label="right tokens",
)
declare(
    "later_right_share",
    share("quality.later_tokens_right", "quality.later_tokens_checked", _UNCHECKED),
    UP,
    "As right_token_share, of turns after the first only.",
)
declare(
    "quality_score",
    first_of(gauge("quality.score"), _right),
    UP,
    "Share of a benchmark answered right; the share of right tokens where there is no benchmark.",
)
declare(
    "margin",
    ratio("quality.margin_sum", _LOOKED, "logits", _NOT_LOOKED),
    UP,
    "By how much a generated token leads the next best one, on average: falls before accuracy does.",
)
_agreed = declare(
    "shadow_agreement",
    share("quality.shadow_agreed", _SHADOW, _NO_SHADOW),
    UP,
    "Generated tokens of sampled requests that the full cache would have said too.",
)
declare(
    "shadow_kl",
    ratio("quality.shadow_kl_sum", _SHADOW, "nats", _NO_SHADOW),
    DOWN,
    "Nats a token by which sampled requests differ from what the full cache says to the same words.",
)
declare(
    "answers_kept",
    first_of(_right, _agreed),
    UP,
    "right_token_share; where no right token is known, shadow_agreement.",
)
declare("perplexity", gauge("quality.perplexity"), DOWN, "Perplexity on a fixed text.", unit="ppl")
declare(
    "quality_falls_with_length",
    setting("quality.falls_with_length"),
    DOWN,
    "1 where answers get worse the longer they are.",
    unit="flag",
)
declare(
    "quality_falls_after_load",
    setting("quality.falls_after_load"),
    DOWN,
    "1 where answers are bad only of requests whose KV came from a slower tier; computed anew they are right.",
    unit="flag",
)
