"""The account of one segment: shares by level, how each is known, the bound of a step, and what would tell more."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from kvscope import signals
from kvscope.account.facts import NO_FACTS, Facts
from kvscope.account.token import TokenLevel, token_level
from kvscope.floor import Floor
from kvscope.signals.intervals import Intervals, intervals_of
from kvscope.signals.limits import Admission, admission
from kvscope.signals.phases import engine_phases, request_phases
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.samples import WATCH_LONGER, Samples
from kvscope.store import Segment, Store

Known = Literal["counted", "inferred", "physics"]
Shares = dict[str, float]
LEVELS = ("admission", "requests", "engine", "token")
HALF = 0.5
"""A part of admission with at least this share of the time is the limit."""
INSIDE = ("cap", "pool", "token_budget", "deferred", "rejected")
OUTSIDE = ("idle", "demand")
TOKEN_LIMITS = {"prefill_between": "prefill", "below_bound": "unknown", "stalls": "unknown"}
"""How a part of a token is named where it stands for the engine's limit."""
VITALS = (
    "running_requests",
    "waiting_requests",
    "generation_tokens_per_s",
    "requests_per_s",
    "kv_usage_ratio",
    "ttft_mean_s",
    "tpot_mean_s",
    "itl_mean_s",
)
_NO_REQUEST = Missing("no request ran in this segment", "send the engine some work")


@dataclass(frozen=True, slots=True)
class Limit:
    """The part that holds the engine back, its share of the time, and how that is known."""

    name: str
    share: float
    known: str


@dataclass(frozen=True, slots=True)
class Lacking:
    """A level that cannot be told, or a part of one, and what would tell it."""

    level: str
    reason: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Account:
    """Shares of 1 by level, None where it cannot be told; ``known`` says how each is: counted, inferred, physics."""

    segment: str
    limit: Limit
    levels: dict[str, Shares | None]
    known: dict[str, str]
    token_limit: str
    token: TokenLevel | None = None
    vitals: dict[str, float] = field(default_factory=dict)
    headroom: dict[str, float] = field(default_factory=dict)
    missing: tuple[Lacking, ...] = ()
    sources: tuple[str, ...] = ()
    replicas: dict[str, Account] = field(default_factory=dict)

    @property
    def bound(self) -> Floor | None:
        """The least time of a step, where model and device are known."""
        return self.token.floor if self.token else None


def account(store: Store, segment: Segment, facts: Facts = NO_FACTS) -> Account:
    """Return the account of a segment; where a source cannot tell a level, what would is in ``missing``."""
    window = Samples(store, segment)
    cut, held = intervals_of(window), admission(window)
    levels: dict[str, Shares | None] = dict.fromkeys(LEVELS)
    known = dict.fromkeys(LEVELS, "")
    missing: list[Lacking] = []
    if isinstance(held, Missing):
        missing.append(Lacking("admission", held.reason, held.remedy))
    else:
        levels["admission"], known["admission"] = held.shares, held.known
    token = None
    if isinstance(cut, Missing):
        missing += [Lacking(level, cut.reason, cut.remedy) for level in LEVELS[1:]]
    else:
        _phases(cut, levels, known, missing)
        token = token_level(cut, facts)
        missing += [Lacking("token", one.reason, one.remedy) for one in token.missing]
        levels["token"], known["token"] = token.shares, token.known
    vitals = {
        name: reading.value for name in VITALS if isinstance(reading := signals.compute(name, store, segment), Reading)
    }
    return Account(
        segment=segment.name,
        limit=_limit(held, token),
        levels=levels,
        known=known,
        token_limit=token.limit if token else "unknown",
        token=token,
        vitals=vitals,
        headroom=_headroom(held, vitals),
        missing=tuple(dict.fromkeys(missing)),
        sources=facts.sources,
    )


def _phases(cut: Intervals, levels: dict[str, Shares | None], known: dict[str, str], missing: list[Lacking]) -> None:
    for level, split in (("requests", request_phases), ("engine", engine_phases)):
        found = split(cut)
        if found is None or sum(found.seconds.values()) <= 0:
            why = _NO_REQUEST if cut.gauge("sched.running") is not None else cut.window.level("sched.running")
            lack = why if isinstance(why, Missing) else Missing("too few samples", WATCH_LONGER)
            missing.append(Lacking(level, lack.reason, lack.remedy))
            continue
        levels[level], known[level] = found.shares(), found.known


def _limit(held: Admission | Missing, token: TokenLevel | None) -> Limit:
    """Return the largest part of admission that holds for half of the time; without admission, that of a token.

    Where no part does alone, those outside the engine (or inside it) may do together: the largest of them is named.
    """
    if isinstance(held, Missing):
        if token is None or token.shares is None:
            return Limit("unknown", 0.0, "")
        name = TOKEN_LIMITS.get(token.limit, token.limit)
        return Limit(name, token.shares.get(token.limit, 0.0), token.known)
    shares = held.shares
    name = max(shares, key=lambda part: shares[part])
    if shares[name] < HALF:
        side = next((some for some in (INSIDE, OUTSIDE) if sum(shares[part] for part in some) >= HALF), ())
        name = max(side, key=lambda part: shares[part]) if side else "unknown"
    return Limit(name, shares[name], held.known)


def _headroom(held: Admission | Missing, vitals: dict[str, float]) -> dict[str, float]:
    found: dict[str, float] = {}
    if isinstance(held, Missing):
        return found
    if held.fits is not None:
        found["pool_fits_requests"] = held.fits
    if held.cap is not None:
        found["may_run"] = held.cap
    if "kv_usage_ratio" in vitals:
        found["pool_free"] = max(0.0, 1.0 - vitals["kv_usage_ratio"])
    return found
