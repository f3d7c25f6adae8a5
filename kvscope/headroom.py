"""Limits side by side, each with what is in use of it, what it allows, how much room is left, how long it held."""

from __future__ import annotations

from dataclasses import dataclass

from kvscope.account import Account
from kvscope.format import quantity


@dataclass(frozen=True, slots=True)
class Room:
    """One limit. ``used`` and ``most`` are words with units; ``factor`` more load fits (1: none), None when unknown.

    ``held`` is the share of the watched time in which it kept requests from running, None where that is not told.
    """

    name: str
    label: str
    used: str
    most: str
    factor: float | None
    held: float | None

    @property
    def room(self) -> str:
        """How much more fits, in words."""
        if self.factor is None:
            return "not told"
        if self.factor < 1.05:
            return "none"
        return f"{self.factor:.1f}×" if self.factor < 10 else f"{self.factor:.0f}×"

    @property
    def held_back(self) -> str:
        """How long it held requests back, in words."""
        if self.held is None:
            return "not told"
        return "never" if self.held < 0.005 else f"{self.held * 100:.0f} % of the time"


def headroom(account: Account, read: dict[str, float]) -> tuple[Room, ...]:
    """Return the limits that are known; ``read`` are readings of signals over the same segment."""
    held = account.levels["admission"] or {}
    running, cap = read.get("running_requests"), account.headroom.get("may_run")
    if running is not None and cap is not None and running > cap:
        cap = None  # more run than were thought to: it was no cap
    rows = []
    if running is not None and (cap or held.get("cap", 0.0) >= 0.005):
        factor = max(cap / running, 1.0) if cap and running > 0.05 else None
        most = f"{cap:.0f}" if cap else "not told"
        rows.append(
            Room(
                "cap",
                "running cap",
                f"{running:.3g} run" if running < 1000 else f"{running:.0f} run",
                most,
                factor,
                held.get("cap"),
            )
        )
    rows += _pool(account, read, held)
    if held.get("token_budget", 0.0) >= 0.005 or "budget_used_share" in read:
        share = read.get("budget_used_share")
        used = f"{share * 100:.0f} %" if share is not None else "prompts"
        most = f"{read['token_budget']:.0f} tokens a step" if "token_budget" in read else "not told"
        rows.append(
            Room("token_budget", "token budget", used, most, 1 / share if share else None, held.get("token_budget"))
        )
    rows += _device(account)
    if held.get("demand", 0.0) >= 0.005:
        rows.append(Room("clients", "clients", "ask for no more", "", None, held["demand"]))
    for part, label in (("deferred", "deferred requests"), ("rejected", "the door")):
        if held.get(part, 0.0) >= 0.005:
            rows.append(Room(part, label, "", "", 1.0, held[part]))
    return tuple(rows)


def _pool(account: Account, read: dict[str, float], held: dict[str, float]) -> list[Room]:
    """How often the requests of now fit into the pool: by what they use of it, or where nothing is shared."""
    usage, fits, running = (
        read.get("kv_usage_ratio"),
        account.headroom.get("pool_fits_requests"),
        read.get("running_requests"),
    )
    if usage is None:
        return []
    factor = fits / running if fits and running and running > 0.05 else 1 / usage if usage > 0.001 else None
    tokens = read.get("kv_capacity_tokens")
    most = quantity(tokens, "tokens") if tokens else "all of it"
    shown = f"{usage * 100:.0f} %" if usage >= 0.0095 else f"{usage * 100:.1f} %"
    return [Room("pool", "KV pool", f"{shown} used", most, max(factor, 1.0) if factor else None, held.get("pool"))]


def _device(account: Account) -> list[Room]:
    """A step against its least time, where model and device are known: what faster kernels could bring at most."""
    token, floor = account.token, account.bound
    if token is None or floor is None or token.step_s <= 0:
        return []
    used = f"{floor.least_s / token.step_s * 100:.0f} % of a step"
    rows = [Room("bandwidth", "memory reads", used, "bound of a step", token.step_s / floor.least_s, None)]
    if floor.flops_s > 0:
        share = floor.flops_s / token.step_s
        rows.append(Room("compute", "arithmetic", f"{share * 100:.0f} % of a step", "peak", 1 / share, None))
    return rows
