"""Prefixes: what comes back, what of it is found, and what the cache would have to hold."""

from __future__ import annotations

from kvscope.signals.algebra import Clip, amount, rate, setting, share
from kvscope.signals.registry import DOWN, NEITHER, UP, declare

_NO_LOOKUP = "no prompt token was looked up in this segment"

declare(
    "prefix_hit_rate",
    share("prefix.hits", "prefix.queries", _NO_LOOKUP),
    UP,
    "Prompt tokens found in the prefix cache / looked up.",
    label="prefix hits",
)
declare(
    "prefix_reusable_share",
    share("prefix.reusable", "prefix.queries", _NO_LOOKUP),
    NEITHER,
    "Prompt tokens looked up that had been computed before / looked up: what a cache that holds all would find.",
)
declare(
    "prefix_lost_share",
    Clip(share(amount("prefix.reusable", less=("prefix.hits",)), "prefix.queries", _NO_LOOKUP), 0.0),
    DOWN,
    "Prompt tokens that had been computed before and were not found any more / looked up.",
)
declare(
    "prefix_restored_share",
    share("prefix.hits", "prefix.matched", "no prompt matched a cached prefix in this segment"),
    UP,
    "Prompt tokens taken from the prefix cache / tokens that a cached prefix shares: below 1 some are lost.",
)
declare(
    "prefix_unrestored_share",
    share(
        amount("prefix.matched", less=("prefix.hits",)),
        amount("prefix.queries", less=("prefix.hits",)),
        "every prompt token looked up was found in this segment",
    ),
    DOWN,
    "Prompt tokens computed although a cached prefix shares them / all prompt tokens computed.",
)
declare(
    "prefix_full_recomputes_per_s",
    rate("prefix.full_recomputes"),
    DOWN,
    "Requests computed from their first token although a prefix of theirs is cached, per second.",
)
declare(
    "prefix_queries_per_s", rate("prefix.queries"), NEITHER, "Prompt tokens looked up in the prefix cache per second."
)
declare(
    "working_set_over_pool",
    setting("prefix.working_set_tokens") / setting("kv.capacity_tokens"),
    DOWN,
    "Distinct prompt tokens that come back / tokens the pool can hold: above 1 some are evicted before their use.",
    unit="x",
)
