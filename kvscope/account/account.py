"""The account of one segment: shares by level, how each is known, the bound of a step, and what would tell more."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal

from kvscope.account.facts import NO_FACTS, Facts
from kvscope.bound import Physics
from kvscope.floor import Floor
from kvscope.signals.floor import TokenLevel, token_level
from kvscope.signals.intervals import Intervals, intervals_of
from kvscope.signals.limits import Admission, admission
from kvscope.signals.phases import engine_phases, request_phases
from kvscope.signals.reading import Missing
from kvscope.signals.samples import WATCH_LONGER, Cell, Samples
from kvscope.store import Segment, Store
from probes.catalog import REPLICA

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


NOW_S = 16.0
"""Seconds that count as now: half of them make a limit, so one that comes or goes is seen within some 10 s."""
MOST_BINS = 400


@dataclass(frozen=True, slots=True)
class Bin:
    """``shares`` of admission between two times, None where nobody tells; ``limit`` names the one that holds."""

    start_s: float
    end_s: float
    shares: Shares | None
    limit: str


class Strip:
    """Bins of ``bin_s`` seconds. Keep the object: a bin that is over is read once."""

    def __init__(self, bin_s: float = 10.0) -> None:
        if bin_s <= 0:
            raise ValueError(f"bin_s is {bin_s}, expected more than 0 seconds")
        self.bin_s = bin_s
        self._over: dict[float, Bin] = {}

    def bins(self, store: Store, start_s: float | None = None, end_s: float | None = None) -> tuple[Bin, ...]:
        """Return the bins that touch the span (the store's where none is given), the newest ``MOST_BINS`` of them."""
        if store.span is None:
            return ()
        first, last = store.span
        start = max(first, first if start_s is None else start_s)
        end = min(last, last if end_s is None else end_s)
        low, high = math.floor(start / self.bin_s), math.floor(end / self.bin_s)
        found = []
        for index in range(max(low, high - MOST_BINS + 1), high + 1):
            at = index * self.bin_s
            known = self._over.get(at)
            if known is None:
                known = _bin(store, at, at + self.bin_s)
                if last >= at + self.bin_s:
                    self._over[at] = known
            found.append(known)
        return tuple(found)


def account_over_time(
    store: Store, start_s: float | None = None, end_s: float | None = None, bin_s: float = 10.0
) -> tuple[Bin, ...]:
    """Return the first level of the account over time; who asks again and again keeps a ``Strip``."""
    return Strip(bin_s).bins(store, start_s, end_s)


def account_now(store: Store, facts: Facts = NO_FACTS, at_s: float | None = None) -> Account | None:
    """Return the account of the last ``NOW_S`` seconds before ``at_s`` (the newest sample), of one segment only."""
    if store.span is None:
        return None
    end = store.span[1] if at_s is None else min(at_s, store.span[1])
    segment = next((one for one in reversed(store.segments) if one.start_s <= end), store.segments[0])
    start = max(segment.start_s, end - NOW_S)
    return account(store, Segment("now", start, math.nextafter(end, math.inf), segment.tags), facts)


def _bin(store: Store, start_s: float, end_s: float) -> Bin:
    held = admission(Samples(store, Segment("bin", start_s, math.nextafter(end_s, math.inf))))
    if isinstance(held, Missing):
        return Bin(start_s, end_s, None, "unknown")
    return Bin(start_s, end_s, held.shares, limit_of(held.shares, held.known).name)


Known = Literal["counted", "sampled", "inferred", "physics"]
Shares = dict[str, float]
LEVELS = ("admission", "requests", "engine", "token")
"""A part of admission with at least this share of the time is the limit."""
INSIDE = ("cap", "pool", "token_budget", "deferred", "rejected")
OUTSIDE = ("idle", "demand")
TOKEN_LIMITS = {"prefill_between": "prefill", "below_bound": "unknown", "stalls": "unknown"}
"""How a part of a token is named where it stands for the engine's limit."""
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
    """Shares of 1 by level, None where it cannot be told; ``known`` says how each is: counted, sampled (timed in
    some steps, the others taken alike), inferred, physics.
    """

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
    ahead: Ahead | None = None
    """What twice the room would bring at most, where the cap or the pool is the limit."""
    front: bool = False
    """It tells no queue: a front end, which counts all that is in flight as running."""

    @property
    def bound(self) -> Floor | None:
        """The least time of a step, where model and device are known."""
        return self.token.floor if self.token else None


def account(store: Store, segment: Segment, facts: Facts = NO_FACTS) -> Account:
    """Return the account of a segment; where a source cannot tell a level, what would is in ``missing``.

    Of a fleet: the whole, with each replica's own in ``replicas``.
    """
    window, facts = Samples(store, segment), known_facts(store, facts)
    names = sorted({dict(labels).get(REPLICA, "") for labels in store.keys("sched.running")} - {""})
    if len(names) < 2:
        return _one(window, facts)
    return whole({name: _one(window.only(Cell(REPLICA, name)), facts) for name in names}, segment.name)


def known_facts(store: Store, facts: Facts) -> Facts:
    """Return the facts that were given, else those that the store carries."""
    if facts is NO_FACTS and isinstance(store.facts, Facts):
        return store.facts
    return facts


def whole(replicas: dict[str, Account], segment: str) -> Account:
    """Return the account of several engines as one: each engine's time counts alike, its requests by their number.

    A front end that tells no queue of its own speaks of the same requests as the engines behind it: it is left out.
    """
    engines = {name: one for name, one in replicas.items() if not one.front} or replicas
    levels: dict[str, Shares | None] = {}
    for level in LEVELS:
        told = [(_weight(one, level), shares) for one in engines.values() if (shares := one.levels[level]) is not None]
        total = sum(weight for weight, _ in told)
        levels[level] = {part: sum(w * s[part] for w, s in told) / total for part in told[0][1]} if total else None
    known = {level: _weakest([one.known[level] for one in engines.values() if one.levels[level]]) for level in LEVELS}
    added = ("running_requests", "waiting_requests", "generation_tokens_per_s", "requests_per_s")
    vitals: dict[str, float] = {}
    for name in dict.fromkeys(name for one in engines.values() for name in one.vitals):
        values = [one.vitals[name] for one in engines.values() if name in one.vitals]
        vitals[name] = sum(values) / (1 if name in added else len(values))
    admitted, first = levels["admission"], next(iter(engines.values()))
    token = max(engines.values(), key=lambda one: _weight(one, "token"))
    return Account(
        segment=segment,
        limit=limit_of(admitted, known["admission"]) if admitted else first.limit,
        levels=levels,
        known=known,
        token_limit=token.token_limit,
        vitals=vitals,
        missing=tuple(dict.fromkeys(lack for one in engines.values() for lack in one.missing)),
        sources=first.sources,
        replicas=replicas,
    )


def _weight(one: Account, level: str) -> float:
    """Return what an engine's shares of a level count: its requests, its tokens, or one engine's time."""
    if level == "requests":
        return one.vitals.get("running_requests", 0.0) + one.vitals.get("waiting_requests", 0.0)
    return one.vitals.get("generation_tokens_per_s", 0.0) if level == "token" else 1.0


def _weakest(known: list[str]) -> str:
    """Return how a level of several engines is known: counted only where all counted."""
    return next((how for how in ("inferred", "physics", "sampled", "counted") if how in known), "")


def _one(window: Samples, facts: Facts) -> Account:
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
    vitals = {} if isinstance(cut, Missing) else _vitals(cut)
    limit = _limit(held, token)
    further = None
    if isinstance(held, Admission) and token is not None:
        running, waiting = vitals.get("running_requests", 0.0), vitals.get("waiting_requests", 0.0)
        further = ahead(held, limit.name, levels["engine"], token, facts, running, waiting)
    return Account(
        segment=window.segment.name,
        limit=limit,
        levels=levels,
        known=known,
        token_limit=token.limit if token else "unknown",
        token=token,
        vitals=vitals,
        headroom=_headroom(held, vitals),
        missing=tuple(dict.fromkeys(missing)),
        sources=(*facts.sources, *(("bytes of a step as the engine counts them",) if token and token.counted else ())),
        ahead=further,
        front=not window.keys("sched.waiting"),
    )


def _vitals(cut: Intervals) -> dict[str, float]:
    """Return the figures of the headline, over the same stretches as the shares."""
    made, ended, watched = cut.total("tokens.generated"), cut.total("requests.finished"), cut.watched_s
    found = {
        "running_requests": cut.average("sched.running"),
        "waiting_requests": cut.average("sched.waiting"),
        "generation_tokens_per_s": made / watched if made is not None and watched else None,
        "requests_per_s": ended / watched if ended is not None and watched else None,
        "kv_usage_ratio": cut.average("kv.usage_ratio"),
        "ttft_mean_s": cut.mean_of("latency.ttft"),
        "tpot_mean_s": cut.mean_of("latency.tpot"),
        "itl_mean_s": cut.mean_of("latency.itl"),
    }
    return {name: value for name, value in found.items() if value is not None}


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
    """Return the limit by admission; where nobody tells that, by what takes most of a token."""
    if isinstance(held, Missing):
        if token is None or token.shares is None:
            return Limit("unknown", 0.0, "")
        name = TOKEN_LIMITS.get(token.limit, token.limit)
        return Limit(name, token.shares.get(token.limit, 0.0), token.known)
    return limit_of(held.shares, held.known)


def limit_of(shares: Shares, known: str) -> Limit:
    """Return the largest part of admission that holds for half of the time.

    Where no part does alone, those outside the engine (or inside it) may do together: the largest of them is named.
    """
    name = max(shares, key=lambda part: shares[part])
    if shares[name] < HALF:
        side = next((some for some in (INSIDE, OUTSIDE) if sum(shares[part] for part in some) >= HALF), ())
        name = max(side, key=lambda part: shares[part]) if side else "unknown"
    return Limit(name, shares[name], known)


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
