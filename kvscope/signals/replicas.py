"""A fleet's replicas, and the ranks of one engine, against each other: each against the median of the
others, and the one that stands out named.

The median of the *others*: of two replicas one can be ten times slower and still not twice their median.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal

from kvscope.signals.algebra import Chosen, Expr, OverCells, first_of, gauge, rate, ratio, share
from kvscope.signals.by_cell import cells, cells_of
from kvscope.signals.evaluate import evaluate
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import DOWN, NEITHER, SIGNALS, UP, declare, procedure
from kvscope.signals.samples import Cell, Samples
from kvscope.signals.significance import change, compared
from kvscope.store import Segment, Store
from probes.catalog import REPLICA
from probes.sample import Labels

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


_ALIVE = ("sched.running", "tokens.generated")
"""What makes a replica one: an engine says it, a machine's exporter does not."""
ONE_TOKEN = 1.5
"""Tokens a request up to which a replica prefills for others: it gives the first, and sometimes its end."""
Role = Literal["prefill", "decode"]
_MOST = 100.0
"""A replica that does nothing at all is not infinitely far from the others."""
_ALONE = Missing(
    "one engine: there is nothing to compare it with",
    "watch the fleet: host1:8000,host2:8000 or prom+http://host:9090",
)


class OneReplica(Store):
    """A store seen through one replica: its series only, under their own labels. Nothing is copied."""

    def __init__(self, store: Store, replica: str) -> None:
        self._whole, self._cell = store, Cell(REPLICA, replica)
        self.facts = store.facts

    def keys(self, metric: str) -> list[Labels]:
        return [labels for labels in self._whole.keys(metric) if self._cell.admits(labels)]

    def series(
        self,
        metric: str,
        labels: Labels = (),
        start_s: float | None = None,
        end_s: float | None = None,
        around: bool = False,
    ) -> tuple[array[float], array[float]]:
        return self._whole.series(metric, labels, start_s, end_s, around)

    def ever_fell(self, metric: str, labels: Labels = ()) -> bool:
        return self._whole.ever_fell(metric, labels)

    def latest(self, metric: str, labels: Labels = (), before_s: float | None = None) -> float | None:
        return self._whole.latest(metric, labels, before_s)

    def newest(self, metric: str) -> float | None:
        return self._whole.newest(metric)


@dataclass(frozen=True, slots=True)
class _Comparison:
    """What is compared, how (a ratio, else a difference), and which way is bad."""

    says: str
    signal: str
    ratio: bool
    bound: float
    """From where on a replica stands out: monitors of fleets warn at twice the median, and at 30 points of the pool."""
    high_is_bad: bool = True
    routed: str = ""
    """What a router says of the same of each of its workers."""

    @property
    def unit(self) -> str:
        """The unit of what is compared."""
        return SIGNALS[self.signal].unit

    @property
    def falling(self) -> bool:
        """Whether the worst is the lowest value of the comparison."""
        return self.ratio and not self.high_is_bad


COMPARISONS = {
    "replica_ttft_ratio": _Comparison("time to the first token", "ttft_mean_s", ratio=True, bound=2.0),
    "replica_tpot_ratio": _Comparison("time per output token", "token_time_s", ratio=True, bound=2.0),
    "replica_waiting_gap": _Comparison(
        "requests waiting", "waiting_requests", ratio=False, bound=1.0, routed="router.waiting"
    ),
    "replica_kv_usage_gap": _Comparison("share of the pool in use", "kv_usage_ratio", ratio=False, bound=0.3),
    "replica_preemption_gap": _Comparison("preemptions", "preemptions_per_s", ratio=False, bound=0.05),
    "replica_throughput_ratio": _Comparison(
        "output tokens", "generation_tokens_per_s", ratio=True, bound=0.5, high_is_bad=False
    ),
    "replica_prefix_hit_gap": _Comparison(
        "prefix hit rate", "prefix_hit_rate", ratio=False, bound=0.25, high_is_bad=False
    ),
}


def names(store: Store) -> list[str]:
    """Return the replicas whose engines spoke, sorted."""
    found = {value for metric in _ALIVE for labels in store.keys(metric) for label, value in labels if label == REPLICA}
    return sorted(found)


def pools(store: Store, segment: Segment) -> dict[Role, tuple[str, ...]]:
    """Return the replicas of a disaggregated fleet by what they do; empty where none prefills for others.

    One that gives a token a request prefills; that KV moves between replicas tells it from short answers.
    """
    known = store.memo(segment)
    key = ("pools", segment.name, segment.start_s, segment.end_s)
    found = known.get(key)
    if not isinstance(found, dict):
        found = known[key] = _pools(Samples(store, segment)) if _moves_kv(store) else {}
    return found


def _moves_kv(store: Store) -> bool:
    return any(metric.startswith("disagg.") for metric in store.metrics())


def _pools(samples: Samples) -> dict[Role, tuple[str, ...]]:
    lengths: dict[str, float] = {}
    for name in names(samples.store):
        one = samples.only(Cell(REPLICA, name))
        tokens, requests = one.increase_of("tokens.generated"), one.increase_of("requests.finished")
        if not isinstance(tokens, Missing) and not isinstance(requests, Missing) and requests > 0:
            lengths[name] = tokens / requests
    prefill = tuple(name for name, length in lengths.items() if length <= ONE_TOKEN)
    decode = tuple(name for name, length in lengths.items() if length > ONE_TOKEN)
    return {"prefill": prefill, "decode": decode} if prefill and decode else {}


def peers(one: str, store: Store, segment: Segment) -> tuple[str, ...]:
    """Return the replicas that do the same work as ``one``, itself among them."""
    found = [pool for pool in pools(store, segment).values() if one in pool]
    return found[0] if found else tuple(names(store))


def each(name: str, store: Store, segment: Segment) -> dict[str, Reading | Missing]:
    """Return replica → the value that the comparison ``name`` compares."""
    return _each(name, Samples(store, segment))


def _each(name: str, samples: Samples) -> dict[str, Reading | Missing]:
    known = samples.store.memo()
    key = ("replicas", name, samples.segment.name, samples.segment.start_s, samples.segment.end_s)
    found = known.get(key)
    if not isinstance(found, dict):
        expr = SIGNALS[COMPARISONS[name].signal].expr
        found = {one: evaluate(expr, samples.only(Cell(REPLICA, one))) for one in names(samples.store)}
        if len(found) < 2 and (routed := COMPARISONS[name].routed):
            found = cells(gauge(routed), samples, "worker") or found
        known[key] = found
    return found


def worst(name: str, store: Store, segment: Segment) -> tuple[str, Reading] | Missing:
    """Return the replica that stands out most to the bad side, and by how much."""
    values = each(name, store, segment)
    if len(values) < 2:
        return _ALONE
    told = {one: value for one, value in values.items() if isinstance(value, Reading)}
    if len(told) < 2:
        return next(value for value in values.values() if isinstance(value, Missing))
    comparison = COMPARISONS[name]
    known: list[tuple[str, Reading]] = []
    for one in told:
        # A replica that prefills and one that decodes are not to be alike.
        alike = peers(one, store, segment) if one in names(store) else tuple(told)
        same = {other: value for other, value in told.items() if other in alike}
        if len(same) > 1 and (reading := _against(comparison, same, one)) is not None:
            known.append((one, reading))
    if not known:
        return Missing(f"the others' {comparison.says} is 0", "send every replica some work")
    return (min if comparison.falling else max)(known, key=lambda pair: pair[1].value)


@procedure(
    "replica_outlier",
    unit="x",
    better=DOWN,
    reads=("sched.running",),
    help="How far the worst replica is past what makes one stand out, of all comparisons: 1 is at the bound.",
)
def replica_outlier(samples: Samples) -> Reading | Missing:
    """Return the largest of the comparisons, each over its bound; its source names the replica and the number."""
    found: list[Reading] = []
    missing = _ALONE
    for name, comparison in COMPARISONS.items():
        told = worst(name, samples.store, samples.segment)
        if isinstance(told, Missing):
            missing = told
        elif comparison.falling:
            value = comparison.bound / max(told[1].value, comparison.bound / _MOST)
            found.append(
                replace(told[1], value=value, error=value * told[1].error / max(told[1].value, 1e-9), unit="x")
            )
        else:
            found.append(
                replace(
                    told[1], value=told[1].value / comparison.bound, error=told[1].error / comparison.bound, unit="x"
                )
            )
    return max(found, key=lambda reading: reading.value - reading.error) if found else missing


def outliers(store: Store, segment: Segment) -> list[str]:
    """Name the replicas that surely stand out, one line each: what of them, and against what."""
    found: dict[str, list[str]] = {}
    for name, comparison in COMPARISONS.items():
        told = worst(name, store, segment)
        if isinstance(told, Missing):
            continue
        replica, reading = told
        if compared(reading, "<=" if comparison.falling else ">=", comparison.bound) == "yes":
            found.setdefault(replica, []).append(reading.source.partition(f" of {replica}: ")[2])
            found[replica][-1] = f"{comparison.says} {found[replica][-1]}"
    return [f"replica {replica} stands out: {'; '.join(lines)}" for replica, lines in found.items()]


def _against(comparison: _Comparison, told: dict[str, Reading], one: str) -> Reading | None:
    here = told[one]
    rest = sorted((value for other, value in told.items() if other != one), key=lambda reading: reading.value)
    middle = median(value.value for value in rest)
    spread = rest[len(rest) // 2].error
    shown = f"{one}: {here.value:.3g} against {middle:.3g} {comparison.unit}, the median of {len(rest)} other"
    source = f"measured: {comparison.says} of {shown}{'s' if len(rest) > 1 else ''}"
    if comparison.ratio and middle <= 0:
        return None
    apart = change(here, Reading(middle, spread, comparison.unit), points=not comparison.ratio)
    sign = 1.0 if comparison.high_is_bad else -1.0
    value, unit = (1 + apart.size, "x") if comparison.ratio else (sign * apart.size, comparison.unit)
    return Reading(value, apart.error, unit, source, here.batches, here.samples)


def _formula(name: str) -> Callable[[Samples], Reading | Missing]:
    def compare(samples: Samples) -> Reading | Missing:
        found = worst(name, samples.store, samples.segment)
        return found if isinstance(found, Missing) else found[1]

    return compare


for _name, _one in COMPARISONS.items():
    _side = "highest" if _one.high_is_bad else "lowest"
    procedure(
        _name,
        unit="x" if _one.ratio else _one.unit,
        better=DOWN,
        reads=("sched.running",),
        help=f"{_one.says.capitalize()} of the replica that is {_side}, against the median of the others.",
    )(_formula(_name))
