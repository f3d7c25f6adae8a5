"""KV memory: what is resident, reserved and believed, what blocks waste, what is free and still cannot be used."""

from __future__ import annotations

from dataclasses import replace

from kvscope.signals.algebra import Clip, OverCells, first_of, gauge, mean_of, rate, ratio, setting, share
from kvscope.signals.evaluate import evaluate
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import DOWN, NEITHER, UP, declare, procedure
from kvscope.signals.samples import SEND_WORK, Samples

_FITS = 0.99
"""What admission counts where it admits all the same."""
_POOL = setting("kv.reserved_bytes")

declare(
    "kv_resident_bytes", gauge("kv.resident_bytes"), DOWN, "Bytes holding live KV, time average.", label="KV memory"
)
declare(
    "kv_layer_bytes", gauge("kv.bytes_per_layer"), DOWN, "Bytes holding live KV, of those told by layer.", label="KV"
)
declare(
    "kv_assumed_bytes_per_token",
    gauge("kv.bytes_per_token_assumed"),
    NEITHER,
    "Bytes that admission counts for a token.",
    label="assumed",
)
declare("kv_reserved_bytes", _POOL, NEITHER, "Bytes the pool holds from the device.")
declare("kv_assumed_bytes", gauge("kv.assumed_bytes"), NEITHER, "KV bytes admission counts for running requests.")
usage = declare("kv_usage_ratio", gauge("kv.usage_ratio"), NEITHER, "Share of the pool that live requests hold.")
declare("kv_capacity_tokens", setting("kv.capacity_tokens"), UP, "Tokens the pool can hold, as configured.")
declare(
    "kv_held_share",
    first_of(
        usage,
        gauge("sched.running") * mean_of("request.tokens_in") / setting("kv.capacity_tokens"),
        says=("", "inferred: prompts of the running requests / tokens the pool can hold"),
    ),
    NEITHER,
    "Share of the pool that live requests hold; where nobody says it, what their prompts take of it.",
    unit="ratio",
)
kv_bytes_per_token = declare(
    "kv_bytes_per_token",
    first_of(gauge("kv.bytes_per_token_measured"), ratio("kv.resident_bytes", "kv.used_tokens", "B")),
    DOWN,
    "Resident KV bytes of one held token, overhead included.",
)
declare(
    "memory_estimate_coefficient",
    setting("kv.bytes_per_token_assumed") / kv_bytes_per_token,
    NEITHER,
    "KV bytes of a token as admission counts it / as measured; 1 is right, above 1 over-reserves.",
    unit="x",
)
_assumed = declare(
    "kv_assumed_share",
    gauge("kv.assumed_bytes") / _POOL,
    NEITHER,
    "KV bytes admission counts as taken / bytes of the pool: at 1 memory accounting is what stops admission.",
    unit="ratio",
)
declare(
    "kv_resident_share",
    gauge("kv.resident_bytes") / _POOL,
    NEITHER,
    "Bytes holding live KV / bytes of the pool: how full the pool really is.",
    unit="ratio",
)
_books = first_of(_assumed, usage, says=("", "inferred: no admission books are reported, from the blocks in use"))
_next = _books * (1 + 1 / Clip(gauge("sched.running"), 1.0))


@procedure(
    "kv_assumed_next_share",
    unit="ratio",
    reads=("kv.assumed_bytes", "kv.reserved_bytes", "sched.running", "kv.usage_ratio", "sched.kv_bound_steps"),
    help="What admission would count as taken with one more average request / the pool: above 1 it does not fit.",
    drawn=_next,
)
def kv_assumed_next_share(samples: Samples) -> Reading | Missing:
    """Where no step waited for blocks another request fits, whatever the books say: cached prefixes give way."""
    books, running = evaluate(_next, samples), evaluate(gauge("sched.running"), samples)
    if isinstance(running, Reading) and running.value <= 0:
        return Missing("nothing was running in this segment", SEND_WORK)
    bound = samples.counter("sched.kv_bound_steps")
    if isinstance(books, Missing) or isinstance(bound, Missing) or books.value < 1.0 or samples.whole(bound) > 0:
        return books
    return replace(
        books, value=_FITS, error=0.0, source="measured: no step waited for blocks, so cached prefixes give way"
    )


declare(
    "kv_overhead_share",
    share("kv.overhead_bytes", "kv.resident_bytes"),
    DOWN,
    "Share of the resident bytes that is scales, representatives and tables.",
)
declare(
    "kv_entries_per_token",
    ratio("kv.entries", "kv.used_tokens"),
    NEITHER,
    "KV entries stored / tokens held: below 1 where a policy evicts.",
)
_block = setting("kv.block_size")
_waste = declare(
    "block_waste_share",
    Clip(1 - ratio("kv.used_tokens", "kv.used_blocks", "tokens", "no block is in use in this segment") / _block, 0.0),
    DOWN,
    "Share of the blocks in use that holds no token: the empty ends of requests.",
    unit="ratio",
)
_ends = ratio("sched.running", "kv.usage_ratio", "requests", "no block is in use in this segment") * _block / 2
declare(
    "block_waste_estimate",
    first_of(
        _waste,
        Clip(_ends / setting("kv.capacity_tokens"), 0.0, 1.0),
        says=("", "inferred: half a block a running request"),
    ),
    DOWN,
    "As block_waste_share; where tokens are not told, half a block for each running request.",
    unit="ratio",
)
_POOLS = gauge("kv.pool_usage_ratio")
declare(
    "pool_usage_highest", OverCells(_POOLS, "pool", "highest"), NEITHER, "Use of the fullest of a hybrid model's pools."
)
declare(
    "pool_usage_lowest", OverCells(_POOLS, "pool", "lowest"), NEITHER, "Use of the emptiest of a hybrid model's pools."
)
declare(
    "kv_retained_bytes",
    gauge("kv.retained_bytes"),
    DOWN,
    "KV bytes held after their requests ended, reusable by nobody.",
)
declare("kv_peak_over_live", gauge("kv.peak_over_live"), DOWN, "Peak of KV memory / KV that requests hold.", unit="x")
declare(
    "kv_free_share",
    share("kv.free_bytes", "kv.reserved_bytes"),
    NEITHER,
    "Bytes of the pool that hold no page / bytes of the pool.",
)
declare(
    "kv_stranded_share",
    share("kv.stranded_bytes", "kv.free_bytes"),
    DOWN,
    "Free bytes that cannot take new tokens (another form's pool, or holes) / free bytes.",
)
declare(
    "kv_longest_run_share",
    share("kv.largest_free_run_bytes", "kv.free_bytes"),
    UP,
    "Longest stretch of free bytes in a row / free bytes: 1 is one hole, near 0 many small ones.",
)
declare(
    "kv_unusable_failures_per_s",
    rate("kv.unusable_failures"),
    DOWN,
    "Allocations a second that failed although enough bytes were free in total.",
)
declare(
    "kv_booked_over_held",
    ratio("kv.assumed_bytes", "kv.resident_bytes"),
    DOWN,
    "KV bytes admission counts as taken / bytes really held: far above 1 memory is booked for nothing.",
)
declare(
    "kv_occupied_share",
    share(("kv.used_tokens", "kv.evictable_tokens"), ("kv.used_tokens", "kv.evictable_tokens", "kv.free_tokens")),
    NEITHER,
    "Share of the pool that holds anything, cached prefixes nobody uses included: not pressure by itself.",
)
declare("evictions_per_s", rate("cache.evictions"), DOWN, "Blocks dropped per second.")
declare("evicted_tokens_per_s", rate("cache.evicted_tokens"), DOWN, "Cached prompt tokens dropped per second.")
declare(
    "block_lifetime_mean_s",
    mean_of("block.lifetime"),
    UP,
    "Allocation to eviction of a block, mean over evicted blocks.",
)
declare(
    "block_idle_mean_s", mean_of("block.idle"), NEITHER, "Last use to eviction of a block, mean over evicted blocks."
)
