"""Hot and cold: reads, moves between them, bytes, and what decode waits for."""

from __future__ import annotations

from kvscope.screens import Chart, Screen
from kvscope.screens.reader import Fact

SCREEN = Screen(
    title="Tiers",
    order=80,
    help="Hot and cold: reads, moves between them, bytes, and what decode waits for.",
    facts=(
        Fact("hot reads", "hot_access_share", 1),
        Fact("moves/token", "tier_switches_per_token", -1),
        Fact("moved", "tier_bytes_per_s", -1),
        Fact("moved/token", "tier_bytes_per_token", -1),
        Fact("tier move", "transfer_share", -1),
        Fact("decompress", "decompress_share", -1),
        Fact("cold entries", "cold_entries_share"),
        Fact("slower hits", "tier_hit_rate", 1),
        Fact("failures", "tier_failures_per_s", -1),
    ),
    charts=(
        Chart("Hot and cold reads", (("hot_reads", "cold_reads"),)),
        Chart("Blocks moved", (("promotions", "demotions"),)),
        Chart("Share of decode waiting for it", (("transfer_share", "decompress_share"),)),
    ),
)
