"""Hot and cold: reads, moves between them, bytes, and what decode waits for."""

from __future__ import annotations

from kvscope.screens import Chart, Screen

SCREEN = Screen(
    title="Tiers",
    order=80,
    needs=("tier.hot_accesses", "tier.bytes_in", "tier.queries", "precision.promotions"),
    help="Hot and cold: reads, moves between them, bytes, and what decode waits for.",
    facts=(
        "hot_access_share",
        "tier_switches_per_token",
        "precision_bytes_per_s",
        "precision_busy_share",
        "tier_bytes_per_s",
        "tier_bytes_per_token",
        "transfer_share",
        "decompress_share",
        "cold_entries_share",
        "tier_hit_rate",
        "tier_failures_per_s",
    ),
    charts=(
        Chart("Hot and cold reads", (("hot_reads_per_s", "cold_reads_per_s"),)),
        Chart("Blocks moved", (("promotions_per_s", "demotions_per_s"),)),
        Chart("Share of decode waiting for it", (("transfer_share", "decompress_share"),)),
    ),
)
