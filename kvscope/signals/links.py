"""Links between tiers and machines: how busy they are, and what a transfer's time is spent on."""

from __future__ import annotations

from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import signal
from kvscope.signals.window import Window


@signal(
    "tier_link_busy_share",
    unit="ratio",
    needs=("tier.load_time",),
    help="Time of loads from a slower tier per second: near 1 the link never rests.",
)
def tier_link_busy_share(window: Window) -> Reading | Missing:
    return window.rate("tier.load_time", "ratio")


@signal(
    "tier_load_bytes_per_token",
    unit="B/token",
    needs=("tier.bytes_in", "tokens.generated"),
    help="Bytes moved toward the hot tier per output token.",
)
def tier_load_bytes_per_token(window: Window) -> Reading | Missing:
    nothing = "no token was generated in this segment"
    return window.ratio(window.counter("tier.bytes_in"), window.counter("tokens.generated"), "B/token", nothing)


@signal(
    "tier_loads_per_s",
    unit="1/s",
    needs=("tier.blocks_in", "tier.tokens_in"),
    help="Blocks (or tokens, where blocks are not told) loaded from a slower tier per second.",
)
def tier_loads_per_s(window: Window) -> Reading | Missing:
    blocks = window.rate("tier.blocks_in", "1/s")
    return blocks if isinstance(blocks, Reading) else window.rate("tier.tokens_in", "1/s")


@signal(
    "tier_usage_ratio",
    unit="ratio",
    needs=("tier.usage_ratio",),
    help="Share of the slower tiers that holds KV, mean over tiers.",
)
def tier_usage_ratio(window: Window) -> Reading | Missing:
    return window.mean("tier.usage_ratio", "ratio")


@signal(
    "transfer_descriptors",
    unit="descriptors",
    needs=("transfer.descriptors",),
    help="Pieces that one transfer of KV is cut into.",
)
def transfer_descriptors(window: Window) -> Reading | Missing:
    return window.mean("transfer.descriptors", "descriptors")


@signal(
    "transfer_post_share",
    unit="ratio",
    needs=("transfer.post_share",),
    help="Share of a transfer's time spent on submitting its pieces.",
)
def transfer_post_share(window: Window) -> Reading | Missing:
    return window.mean("transfer.post_share", "ratio")
