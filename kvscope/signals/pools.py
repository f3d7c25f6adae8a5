"""Disaggregated serving: the replicas that prefill, those that decode, and whether one pool waits beside the other.

A replica that gives one token a request prefills for others; in a fleet that moves KV between replicas the rest decode.
"With one less" is arithmetic: what n replicas do takes n / (n - 1) times as much of each of the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import fmean
from typing import Literal

from kvscope.signals.algebra import gauge, mean_of
from kvscope.signals.evaluate import evaluate
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import DOWN, procedure
from kvscope.signals.samples import Cell, Samples
from probes.catalog import REPLICA

_NO_POOLS = Missing(
    "no fleet whose replicas prefill for others",
    "watch the prefill and the decode replicas together, with their transfer counters (NIXL, Mooncake, SGLang)",
)
_READS = ("sched.running", "sched.waiting", "disagg.transfer_time", "tokens.generated", "requests.finished")
Pool = Literal["prefill", "decode"]


def _members(samples: Samples, role: Pool) -> tuple[str, ...]:
    # Imported late: what replicas are compared by must have been declared.
    from kvscope.signals.replicas import pools

    return pools(samples.store, samples.segment).get(role, ())


def _mean(samples: Samples, role: Pool, one: Callable[[Samples], Reading | Missing]) -> Reading | Missing:
    """Return the mean over the replicas of a pool, and of how many."""
    members = _members(samples, role)
    if not members:
        return _NO_POOLS
    told = [one(samples.only(Cell(REPLICA, name))) for name in members]
    known = [reading for reading in told if isinstance(reading, Reading)]
    if len(known) < len(told):
        return next(reading for reading in told if isinstance(reading, Missing))
    error = fmean(reading.error for reading in known) / len(known) ** 0.5
    source = f"measured: mean of {len(known)} {role} replica{'s' if len(known) > 1 else ''}"
    value = fmean(reading.value for reading in known)
    return replace(known[0], value=value, error=error, source=source, batches=min(one.batches for one in known))


def _with_one_less(samples: Samples, role: Pool, one: Callable[[Samples], Reading | Missing]) -> Reading | Missing:
    found = _mean(samples, role, one)
    count = len(_members(samples, role))
    if isinstance(found, Missing):
        return found
    if count < 2:
        return Missing(f"one {role} replica: it cannot be spared", f"a pool of two {role} replicas or more")
    by = count / (count - 1)
    said = f"{found.source}, times {count}/{count - 1}"
    return replace(found, value=found.value * by, error=found.error * by, source=said)


def _waiting(samples: Samples) -> Reading | Missing:
    return evaluate(gauge("sched.waiting"), samples)


def _filled(samples: Samples) -> Reading | Missing:
    return evaluate(gauge("kv.usage_ratio"), samples)


def _busy(samples: Samples) -> Reading | Missing:
    """Share of the readings at which something ran."""
    level = samples.level("sched.running")
    if isinstance(level, Missing):
        return level
    _, values = level
    if not len(values):
        return Missing("no reading of what runs", "watch for longer")
    share = fmean(value > 0 for value in values)
    error = (share * (1 - share) / len(values)) ** 0.5
    return Reading(share, error, "ratio", "measured", len(values), len(values))


def _declare(pool: Pool) -> None:
    procedure(
        f"{pool}_pool_waiting",
        unit="requests",
        reads=_READS,
        better=DOWN,
        help=f"Requests that wait at a {pool} replica, mean over those of a disaggregated fleet.",
    )(lambda samples: _mean(samples, pool, _waiting))
    procedure(
        f"{pool}_pool_idle_share",
        unit="ratio",
        reads=_READS,
        help=f"Share of the time in which a {pool} replica runs nothing, mean over those of a disaggregated fleet.",
    )(lambda samples: _idle(samples, pool))


def _idle(samples: Samples, pool: Pool) -> Reading | Missing:
    found = _mean(samples, pool, _busy)
    return found if isinstance(found, Missing) else replace(found, value=1.0 - found.value)


for _pool in ("prefill", "decode"):
    _declare(_pool)


@procedure(
    "prefill_pool_busy_with_one_less",
    unit="ratio",
    reads=_READS,
    help="Share of the time in which prefill replicas would run something if there were one less (inferred).",
)
def prefill_pool_busy_with_one_less(samples: Samples) -> Reading | Missing:
    return _with_one_less(samples, "prefill", _busy)


@procedure(
    "decode_pool_filled_with_one_less",
    unit="ratio",
    reads=(*_READS, "kv.usage_ratio"),
    help="Share of the KV pool that decode replicas would use if there were one less (inferred).",
)
def decode_pool_filled_with_one_less(samples: Samples) -> Reading | Missing:
    return _with_one_less(samples, "decode", _filled)


@procedure(
    "transfer_over_ttft",
    unit="ratio",
    reads=("disagg.transfer_time", "latency.ttft"),
    better=DOWN,
    help="Time in which a request's KV moves from prefill to decode / time to its first token.",
)
def transfer_over_ttft(samples: Samples) -> Reading | Missing:
    moved, first = (evaluate(mean_of(name), samples) for name in ("disagg.transfer_time", "latency.ttft"))
    if isinstance(moved, Missing):
        return moved
    if isinstance(first, Missing):
        return first
    if first.value <= 0:
        return Missing("no request got a first token", "send the engines some work")
    share = moved.value / first.value
    error = share * ((moved.error / moved.value) ** 2 + (first.error / first.value) ** 2) ** 0.5 if moved.value else 0.0
    batches = min(moved.batches, first.batches)
    return Reading(share, error, "ratio", "measured: mean transfer over mean TTFT", batches, moved.samples)
