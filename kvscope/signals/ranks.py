"""The ranks of one engine against each other: how evenly they read, how long they wait, whether sharding pays."""

from __future__ import annotations

from kvscope.signals.algebra import Chosen, Expr, OverCells, first_of, gauge, rate, ratio, share
from kvscope.signals.by_cell import cells_of
from kvscope.signals.reading import Missing
from kvscope.signals.registry import DOWN, NEITHER, UP, declare
from kvscope.signals.samples import Samples

_NO_DECODE = "nothing was decoded in this segment"

declare(
    "rank_read_ratio",
    OverCells(rate("rank.entries_read"), "rank", "most_over_mean"),
    DOWN,
    "KV entries that the busiest rank read / the mean of the ranks.",
)
declare(
    "rank_kv_ratio",
    OverCells(gauge("rank.kv_bytes"), "rank", "most_over_mean"),
    DOWN,
    "KV bytes of the fullest rank / the mean of the ranks.",
)
declare("rank_kv_bytes", gauge("rank.kv_bytes"), NEITHER, "KV bytes that ranks hold.", label="KV")
declare("rank_reads_per_s", rate("rank.entries_read"), NEITHER, "KV entries that ranks read per second.")
declare(
    "rank_exchange_share",
    share("rank.exchange_time", "time.decode", _NO_DECODE),
    DOWN,
    "Time in exchanges between ranks, waiting included / decode time, mean over ranks.",
)
declare(
    "rank_wait_share",
    share("rank.wait_time", "time.decode", _NO_DECODE),
    DOWN,
    "Time spent waiting for a later rank / decode time, mean over ranks.",
)
declare(
    "rank_attend_share",
    share("rank.attend_time", "time.decode", _NO_DECODE),
    NEITHER,
    "Time in attention and in merging its parts / decode time, mean over ranks.",
)
declare(
    "rank_wait_of_exchange",
    share("rank.wait_time", "rank.exchange_time", "nothing was exchanged in this segment"),
    NEITHER,
    "The part of the time in exchanges that is waiting for a later rank, not sending.",
)
declare(
    "rank_bytes_sent_per_step",
    ratio("rank.bytes_sent", "batch.decode_steps", "B/step", _NO_DECODE),
    DOWN,
    "Bytes a rank sends in a decode step, mean over ranks.",
)
declare(
    "rank_blocks_per_step",
    ratio("rank.selected_blocks", "batch.decode_steps", "blocks", _NO_DECODE),
    DOWN,
    "Blocks that a rank reads in a decode step, all layers and heads, mean over ranks.",
)


def _speedup(samples: Samples) -> Expr | Missing:
    """Inferred: one rank would choose and attend for the sum of the ranks, exchange nothing, and do the rest alike."""
    count = len(cells_of(samples, ("rank.attend_time",), "rank"))
    if count == 1:
        return Missing("one rank only", "a run over several ranks")
    attend, index, exchange = (
        share(name, "time.decode", _NO_DECODE)
        for name in ("rank.attend_time", "sparse.index_time", "rank.exchange_time")
    )
    expr = 1 + (attend + index) * (count - 1) - exchange
    return first_of(expr, says=(f"inferred: {count} ranks, from their shares of decode",))


declare(
    "shard_speedup",
    Chosen(_speedup, ("rank.attend_time", "sparse.index_time", "rank.exchange_time", "time.decode"), "x"),
    UP,
    "Decode on one rank, as the sum of what all ranks choose and read, / decode as it is. Below 1 sharding loses.",
)
