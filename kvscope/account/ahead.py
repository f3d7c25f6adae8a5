"""What twice the room would bring at most, and what would limit the engine then."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvscope.bound import Physics
from kvscope.signals.floor import TokenLevel
from kvscope.signals.limits import Admission

MOST_EXPLAINED, LEAST_EXPLAINED = 1.0, 0.5
"""A step's bound explains between these shares of what a larger batch adds to it."""
HALF = 0.5


@dataclass(frozen=True, slots=True)
class Ahead:
    """``change`` is what is doubled; ``at_most`` the factor on throughput, never more; ``then`` what limits next."""

    change: str
    at_most: float
    then: str
    how: str


def ahead(
    held: Admission, limit: str, engine: dict[str, float] | None, token: TokenLevel, physics: Physics | None,
    running: float, waiting: float,
) -> Ahead | None:  # fmt: skip
    """Return what twice the cap or the pool would bring; None where neither is the limit, or nothing ran.

    Prompts cost as much as before: only the rest gets cheaper. No more can be gained than those that wait.
    """
    if limit not in ("cap", "pool") or running <= 0 or engine is None:
        return None
    work = engine["prefill"] + engine["decode"]
    prefill = engine["prefill"] / work if work else 0.0
    faster, how = _decode_gain(token, physics)
    both = prefill + (1 - prefill) / faster
    at_most = min(1 / both, 1 + waiting / running)
    return Ahead(f"{limit} x 2", max(1.0, at_most), _then(held, limit, prefill / both, running, waiting), how)


def _decode_gain(token: TokenLevel, physics: Physics | None) -> tuple[float, str]:
    """Return by how much more tokens a second twice the batch decodes: 2 · t(B) / t(2B)."""
    load, now = token.load, token.floor
    if load is None or now is None or physics is None or not token.step_s:
        return 2.0, "a step taken to last no longer with twice the requests"
    twice = replace(
        load,
        requests=2 * load.requests,
        tokens=None if load.tokens is None else 2 * load.tokens,
        resident=None if load.resident is None else 2 * load.resident,
    )
    then = physics.floor(twice)
    if then is None:
        return 2.0, "a step taken to last no longer with twice the requests"
    explained = min(MOST_EXPLAINED, max(LEAST_EXPLAINED, now.most_s / token.step_s))
    longer = max(0.0, then.most_s - now.most_s) / explained
    return 2 * token.step_s / (token.step_s + longer), "what the bound of a step adds for twice the requests"


def _then(held: Admission, limit: str, prefill: float, running: float, waiting: float) -> str:
    if limit == "cap" and held.fits is not None and min(2 * running, running + waiting) > held.fits:
        return "pool"
    if limit == "pool" and held.cap is not None and min(2 * running, running + waiting) > held.cap:
        return "cap"
    if waiting <= running:
        return "demand"
    return "prefill" if prefill > HALF else limit
