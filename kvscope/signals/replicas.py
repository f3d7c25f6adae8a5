"""A fleet's replicas against each other: each against the median of the others, and the one that stands out named.

The median of the *others*: of two replicas one can be ten times slower and still not twice their median.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median

from kvscope.signals.latency import mean_of
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import SIGNALS, signal
from kvscope.signals.window import Window
from kvscope.store import Segment, Store
from probes.catalog import REPLICA
from probes.sample import Labels

_ALIVE = ("sched.running", "tokens.generated")
"""What makes a replica one: an engine says it, a machine's exporter does not."""
_MOST = 100.0
"""A replica that does nothing at all is not infinitely far from the others."""
_ALONE = Missing(
    "one engine: there is nothing to compare it with",
    "watch the fleet: host1:8000,host2:8000 or prom+http://host:9090",
)


class OneReplica(Store):
    """A store seen through one replica: its series only, under their own labels. Nothing is copied."""

    def __init__(self, store: Store, replica: str) -> None:
        self._whole, self._pair = store, (REPLICA, replica)

    def keys(self, metric: str) -> list[Labels]:
        return [labels for labels in self._whole.keys(metric) if self._pair in labels]

    def series(
        self, metric: str, labels: Labels = (), start_s: float | None = None, end_s: float | None = None
    ) -> tuple[array[float], array[float]]:
        return self._whole.series(metric, labels, start_s, end_s)

    def ever_fell(self, metric: str, labels: Labels = ()) -> bool:
        return self._whole.ever_fell(metric, labels)

    def latest(self, metric: str, labels: Labels = (), before_s: float | None = None) -> float | None:
        return self._whole.latest(metric, labels, before_s)


@dataclass(frozen=True, slots=True)
class _Comparison:
    """What is compared (``unit`` of it), how (``x``: a ratio, else a difference), and which way is bad."""

    says: str
    unit: str
    read: Callable[[Window], Reading | Missing]
    ratio: bool
    bound: float
    """From where on a replica stands out: monitors of fleets warn at twice the median, and at 30 points of the pool."""
    high_is_bad: bool = True

    @property
    def falling(self) -> bool:
        """Whether the worst is the lowest value of the comparison."""
        return self.ratio and not self.high_is_bad


def _named(name: str) -> Callable[[Window], Reading | Missing]:
    return lambda window: SIGNALS[name].formula(window)


def _token_time(window: Window) -> Reading | Missing:
    """Return the time per output token, by request where it is told, else by gap."""
    by_request = mean_of(window, "latency.tpot", "s")
    return by_request if isinstance(by_request, Reading) else mean_of(window, "latency.itl", "s")


COMPARISONS = {
    "replica_ttft_ratio": _Comparison("time to the first token", "s", _named("ttft_mean_s"), ratio=True, bound=2.0),
    "replica_tpot_ratio": _Comparison("time per output token", "s", _token_time, ratio=True, bound=2.0),
    "replica_waiting_gap": _Comparison(
        "requests waiting", "requests", _named("waiting_requests"), ratio=False, bound=1.0
    ),
    "replica_kv_usage_gap": _Comparison(
        "share of the pool in use", "ratio", _named("kv_usage_ratio"), ratio=False, bound=0.3
    ),
    "replica_preemption_gap": _Comparison("preemptions", "1/s", _named("preemptions_per_s"), ratio=False, bound=0.05),
    "replica_throughput_ratio": _Comparison(
        "output tokens", "1/s", _named("generation_tokens_per_s"), ratio=True, bound=0.5, high_is_bad=False
    ),
    "replica_prefix_hit_gap": _Comparison(
        "prefix hit rate", "ratio", _named("prefix_hit_rate"), ratio=False, bound=0.25, high_is_bad=False
    ),
}


def names(store: Store) -> list[str]:
    """Return the replicas whose engines spoke, sorted."""
    found = {value for metric in _ALIVE for labels in store.keys(metric) for label, value in labels if label == REPLICA}
    return sorted(found)


def each(name: str, store: Store, segment: Segment) -> dict[str, Reading | Missing]:
    """Return replica → the value that the comparison ``name`` compares."""
    known = store.memo()
    key = ("replicas", name, segment.name, segment.start_s, segment.end_s)
    found = known.get(key)
    if not isinstance(found, dict):
        read = COMPARISONS[name].read
        found = known[key] = {one: read(Window(OneReplica(store, one), segment)) for one in names(store)}
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
    found = [(one, _against(comparison, told, one)) for one in told]
    known = [(one, reading) for one, reading in found if reading is not None]
    if not known:
        return Missing(f"the others' {comparison.says} is 0", "send every replica some work")
    return (min if comparison.falling else max)(known, key=lambda pair: pair[1].value)


@signal(
    "replica_outlier",
    unit="x",
    needs=("sched.running",),
    help="How far the worst replica is past what makes one stand out, of all comparisons: 1 is at the bound.",
)
def replica_outlier(window: Window) -> Reading | Missing:
    """Return the largest of the comparisons, each over its bound; its source names the replica and the number."""
    found: list[Reading] = []
    missing = _ALONE
    for name, comparison in COMPARISONS.items():
        told = worst(name, window.store, window.segment)
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
        falling, edge = comparison.falling, comparison.bound
        if reading.value + reading.error <= edge if falling else reading.value - reading.error >= edge:
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
    if not comparison.ratio:
        sign = 1.0 if comparison.high_is_bad else -1.0
        error = math.hypot(here.error, spread)
        return Reading(sign * (here.value - middle), error, comparison.unit, source, here.batches, here.samples)
    if middle <= 0:
        return None
    value = here.value / middle
    error = math.hypot(here.error, value * spread) / middle
    return Reading(value, error, "x", source, here.batches, here.samples)


def _formula(name: str) -> Callable[[Window], Reading | Missing]:
    def compare(window: Window) -> Reading | Missing:
        found = worst(name, window.store, window.segment)
        return found if isinstance(found, Missing) else found[1]

    return compare


for _name, _one in COMPARISONS.items():
    _side = "highest" if _one.high_is_bad else "lowest"
    signal(
        _name,
        unit="x" if _one.ratio else _one.unit,
        needs=("sched.running",),
        help=f"{_one.says.capitalize()} of the replica that is {_side}, against the median of the others.",
    )(_formula(_name))
