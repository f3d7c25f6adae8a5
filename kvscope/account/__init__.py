"""What limits an engine now, on four levels that each add up to 1: no finding, no verdict, an answer always.

``account(store, segment, facts)`` composes what ``kvscope.signals`` reads with the bound of a step (``kvscope.floor``).
"""

from __future__ import annotations

from kvscope.account.account import (
    LEVELS,
    Account,
    Ahead,
    Bin,
    Lacking,
    Limit,
    Strip,
    account,
    account_now,
    account_over_time,
)
from kvscope.account.change import Change, change
from kvscope.account.facts import NO_FACTS, Facts

__all__ = [
    "LEVELS",
    "NO_FACTS",
    "Account",
    "Ahead",
    "Bin",
    "Change",
    "Facts",
    "Lacking",
    "Limit",
    "Strip",
    "account",
    "account_now",
    "account_over_time",
    "change",
]
