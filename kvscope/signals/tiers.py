"""Tiers: how often decode meets cold KV, what moves; the tier behind the pool: is it asked, how fast, does it fail."""

from __future__ import annotations

from kvscope.signals.algebra import first_of, gauge, mean_of, rate, ratio, setting, share
from kvscope.signals.memory import kv_bytes_per_token
from kvscope.signals.registry import DOWN, NEITHER, UP, declare

_HOT, _COLD = "tier.hot_accesses", "tier.cold_accesses"
_BYTES = ("tier.bytes_in", "tier.bytes_out")
_NO_TOKEN = "no token was generated in this segment"
_NO_TRANSFER = "nothing was moved in this segment"

declare(
    "hot_access_share",
    share(_HOT, (_HOT, _COLD), "decode read no block"),
    UP,
    "Block reads of decode served at full precision / all block reads.",
    label="hot reads",
)
declare("hot_reads_per_s", rate(_HOT), UP, "Block reads of decode served at full precision per second.", label="hot")
declare(
    "cold_reads_per_s", rate(_COLD), DOWN, "Block reads of decode served from the cold form a second.", label="cold"
)
declare(
    "layer_hot_share",
    share("tier.layer_hot_accesses", ("tier.layer_hot_accesses", "tier.layer_cold_accesses"), "decode read no block"),
    UP,
    "Block reads of decode served at full precision / all block reads, of those told by layer.",
    label="hot reads",
)
declare("promotions_per_s", rate("precision.promotions"), DOWN, "Blocks made hot per second.", label="promotions")
declare("demotions_per_s", rate("precision.demotions"), DOWN, "Blocks made cold per second.", label="demotions")
declare("hot_entries", gauge("kv.hot_entries"), NEITHER, "Entries held at full precision, all layers.")
declare("cold_entries", gauge("kv.cold_entries"), NEITHER, "Entries held in the cold form, all layers.")
declare(
    "tier_switches_per_token",
    ratio(("precision.promotions", "precision.demotions"), "tokens.generated", "1/token", _NO_TOKEN),
    DOWN,
    "Blocks promoted or demoted per output token.",
)
declare(
    "precision_bytes_per_s",
    rate("precision.bytes_in", "precision.bytes_out"),
    DOWN,
    "Bytes written per second in making blocks hot or cold.",
)
declare(
    "precision_busy_share",
    rate("precision.promote_time", "precision.demote_time"),
    DOWN,
    "Time of making blocks hot or cold per second.",
)
declare("tier_bytes_per_s", rate(*_BYTES), DOWN, "Bytes moved between tiers per second, both ways.")
declare(
    "tier_bytes_per_token",
    ratio(_BYTES, "tokens.generated", "B/token", _NO_TOKEN),
    DOWN,
    "Bytes moved between tiers per output token.",
)
declare(
    "cold_entries_share",
    share("kv.cold_entries", ("kv.cold_entries", "kv.hot_entries"), "no entry is held in this segment"),
    NEITHER,
    "Entries held in the cold form / all entries held, over all layers.",
)
declare(
    "repromoted_share",
    share("precision.repromotions", "precision.promotions", "no block was made hot in this segment"),
    DOWN,
    "Blocks made hot again within 16 steps of having been made cold / all blocks made hot.",
)
declare(
    "promotions_per_step",
    ratio("precision.promotions", "batch.decode_steps", "1/step"),
    DOWN,
    "Blocks made hot per decode step.",
)
declare(
    "refetched_share",
    share("tier.refetches", "tier.blocks_in", "no page was fetched in this segment"),
    DOWN,
    "Pages fetched from the host within 16 steps of having been sent there / all pages fetched.",
)
declare(
    "host_fetched_per_step",
    ratio("tier.blocks_in", "batch.decode_steps", "1/step"),
    DOWN,
    "Pages fetched from the host per decode step, because it was about to read them.",
)
declare(
    "tier_hit_rate",
    share(
        "tier.hits",
        "tier.queries",
        "no prompt token was looked up in a slower tier (a counter that stays 0 is no measured zero)",
    ),
    UP,
    "Prompt tokens found in a slower tier / looked up there.",
)
declare("tier_load_bytes_per_s", rate("tier.bytes_in"), NEITHER, "Bytes moved toward the hot tier per second.")
declare("tier_store_bytes_per_s", rate("tier.bytes_out"), NEITHER, "Bytes moved away from the hot tier per second.")
declare(
    "tier_loads_per_store",
    ratio("tier.bytes_in", "tier.bytes_out", "x", _NO_TRANSFER),
    UP,
    "Bytes loaded from a slower tier / stored in it: near 0 a tier is written and never read.",
)
declare(
    "tier_load_bandwidth",
    ratio("tier.bytes_in", "tier.load_time", "B/s", _NO_TRANSFER),
    UP,
    "Bytes loaded from a slower tier / the time the loads took.",
)
declare(
    "tier_failures_per_s",
    rate("tier.failures"),
    DOWN,
    "Loads, stores and allocations of a slower tier that failed or were dropped, per second.",
)
declare(
    "tier_link_busy_share",
    rate("tier.load_time"),
    DOWN,
    "Time of loads from a slower tier per second: near 1 the link never rests.",
)
declare(
    "tier_load_bytes_per_token",
    ratio("tier.bytes_in", "tokens.generated", "B/token", _NO_TOKEN),
    DOWN,
    "Bytes moved toward the hot tier per output token.",
)
declare(
    "tier_loads_per_s",
    first_of(rate("tier.blocks_in"), rate("tier.tokens_in")),
    NEITHER,
    "Blocks (or tokens, where blocks are not told) loaded from a slower tier per second.",
)
declare(
    "tier_usage_ratio",
    gauge("tier.usage_ratio"),
    NEITHER,
    "Share of the slower tiers that holds KV, mean over tiers.",
)
declare("transfer_descriptors", gauge("transfer.descriptors"), DOWN, "Pieces that one transfer of KV is cut into.")
declare(
    "transfer_post_share",
    gauge("transfer.post_share"),
    DOWN,
    "Share of a transfer's time spent on submitting its pieces.",
)
declare("tier_hits_per_s", rate("tier.hits"), UP, "Prompt tokens found in a slower tier per second.")
declare(
    "tier_load_share",
    rate("tier.load_time"),
    DOWN,
    "Time of loads from a slower tier per second, overlapped with compute or not.",
)
declare("tier_lookup_s", mean_of("tier.lookup_time"), DOWN, "Looking up a request in a slower tier, mean.")
declare(
    "tier_loaded_share",
    ratio("tier.tokens_in", "tier.hits", "ratio", "nothing was found in a slower tier"),
    NEITHER,
    "Prompt tokens loaded from a slower tier / found there: the others lay in the pool already.",
)
_HELD = first_of(setting("tier.capacity_bytes"), setting("config.host_cache_bytes"))
declare(
    "working_set_over_tier",
    first_of(
        setting("tier.working_set_bytes") / _HELD,
        setting("prefix.working_set_tokens") / setting("tier.capacity_tokens"),
        setting("prefix.working_set_tokens") * kv_bytes_per_token / _HELD,
    ),
    DOWN,
    "KV that comes back / what a slower tier can hold: above 1, used in turn, all of it is dropped before its use.",
    unit="x",
)
