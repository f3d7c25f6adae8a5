"""What a signal is made of: expressions over metrics, as frozen data that four readers read.

An ``Amount`` adds up over time: what counters grew by, what observations came to, a gauge's value times the time it
stood. Every rate, share and mean is one amount over another, so that a chart's bins sum to the segment's reading.
``evaluate`` gives a value with its error, ``curves`` a line, ``by_cell`` one reading a cell, ``promql`` a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Literal

from probes.catalog import metric_of

if TYPE_CHECKING:
    from kvscope.signals.reading import Missing, Reading
    from kvscope.signals.samples import Samples

SHARE = "ratio"
"""The unit of a share, 0 to 1: the only one whose changes may be given in points."""
Operator = Literal["+", "-", "*", "/"]


@dataclass(frozen=True, slots=True)
class Amount:
    """The sum of ``metrics`` less the sum of ``less``, over time; all counters (or observations), or all gauges."""

    metrics: tuple[str, ...]
    less: tuple[str, ...] = ()

    def at_least(self, bound: Bound) -> Condition:
        """Whether the gauges sum to ``bound`` or more."""
        return Condition(((self, ">=", bound),))

    def above(self, bound: Bound) -> Condition:
        """Whether the gauges sum to more than ``bound``."""
        return Condition(((self, ">", bound),))


@dataclass(frozen=True, slots=True)
class EitherAmount:
    """The first of ``options`` that a source reports."""

    options: tuple[Amount, ...]


Flowing = Amount | EitherAmount


@dataclass(frozen=True, slots=True)
class Expr:
    """A number over a stretch of time. Arithmetic on expressions is an expression."""

    def __add__(self, other: Expr | float) -> Expr:
        return Calc("+", self, expr_of(other))

    def __radd__(self, other: float) -> Expr:
        return Calc("+", expr_of(other), self)

    def __sub__(self, other: Expr | float) -> Expr:
        return Calc("-", self, expr_of(other))

    def __rsub__(self, other: float) -> Expr:
        return Calc("-", expr_of(other), self)

    def __mul__(self, other: Expr | float) -> Expr:
        return Calc("*", self, expr_of(other))

    def __truediv__(self, other: Expr | float) -> Expr:
        return Calc("/", self, expr_of(other))

    def __rtruediv__(self, other: float) -> Expr:
        return Calc("/", expr_of(other), self)


@dataclass(frozen=True, slots=True)
class Highest(Expr):
    """The largest sample of a gauge, summed over its labels."""

    metric: str


@dataclass(frozen=True, slots=True)
class Setting(Expr):
    """A configured value: averaged where it moves, exact where it was said once, however long ago."""

    metric: str


@dataclass(frozen=True, slots=True)
class FirstOf(Expr):
    """The first of ``options`` that has a value; ``says`` is the source to name for each, where it is not its own."""

    options: tuple[Expr, ...]
    says: tuple[str, ...] = ()


Bound = float | Expr


@dataclass(frozen=True, slots=True)
class Condition:
    """What gauges must fulfil together, sample by sample; judged for each replica by itself."""

    tests: tuple[tuple[Amount, Literal[">=", ">"], Bound], ...]

    @property
    def reads(self) -> tuple[Amount, ...]:
        """The gauges that are looked at."""
        return tuple(amount for amount, _, _ in self.tests)

    def __and__(self, other: Condition) -> Condition:
        return Condition(self.tests + other.tests)


@dataclass(frozen=True, slots=True)
class Increase(Expr):
    """By how much counters grew: exact."""

    amount: Amount
    unit: str


@dataclass(frozen=True, slots=True)
class Rate(Expr):
    """An amount of counters over the time that passed (while ``when`` holds, where it is said)."""

    amount: Amount
    when: Condition | None = None


@dataclass(frozen=True, slots=True)
class Ratio(Expr):
    """One amount over another; ``nothing`` says what it means that the bottom stood still."""

    top: Flowing
    bottom: Flowing
    unit: str = SHARE
    nothing: str = ""


@dataclass(frozen=True, slots=True)
class Gauge(Expr):
    """The time average of gauges added up, while ``when`` holds. A sample stands for half the way to its neighbours."""

    amount: Amount
    when: Condition | None = None

    def during(self, condition: Condition) -> Gauge:
        """Return the average over the moments in which ``condition`` holds."""
        return replace(self, when=self.when & condition if self.when else condition)


@dataclass(frozen=True, slots=True)
class Fraction(Expr):
    """The share of the time (in which ``when`` holds) in which ``condition`` holds too."""

    condition: Condition
    when: Condition | None = None

    def during(self, condition: Condition) -> Fraction:
        """Return the share of the moments in which ``condition`` holds."""
        return replace(self, when=condition)


@dataclass(frozen=True, slots=True)
class QuantileOf(Expr):
    """A quantile of an observation: exact from its values, or within a histogram's bucket."""

    metric: str
    q: float


@dataclass(frozen=True, slots=True)
class Constant(Expr):
    """A number."""

    value: float


@dataclass(frozen=True, slots=True)
class Calc(Expr):
    """Arithmetic on two expressions; a division by 0 has no value."""

    operator: Operator
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Clip(Expr):
    """An expression held between two bounds."""

    inner: Expr
    low: float
    high: float = float("inf")


@dataclass(frozen=True, slots=True)
class Within(Expr):
    """An expression over a part of the segment, given as shares of its length."""

    inner: Expr
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class OverCells(Expr):
    """One number of the cells: the largest, the smallest, their difference, or the largest over the mean."""

    inner: Expr
    label: str
    how: Literal["highest", "lowest", "spread", "most_over_mean"]


@dataclass(frozen=True, slots=True)
class Chosen(Expr):
    """An expression that follows from what is reported: a function names it."""

    function: Callable[[Samples], Expr | Missing]
    reads: tuple[str, ...]
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Procedure(Expr):
    """What is no formula: a function over the samples of a segment, and the metrics it reads.

    ``drawn`` is the formula that lines and rules take for it, where there is one.
    """

    function: Callable[[Samples], Reading | Missing]
    reads: tuple[str, ...]
    drawn: Expr | None = None


def expr_of(value: Expr | float) -> Expr:
    """Return an expression, a number as a constant."""
    return value if isinstance(value, Expr) else Constant(value)


def amount(*metrics: str, less: tuple[str, ...] = ()) -> Amount:
    """Return the sum of ``metrics`` less the sum of ``less``."""
    return Amount(metrics, less)


def _flow(of: str | tuple[str, ...] | Flowing) -> Flowing:
    return of if isinstance(of, Amount | EitherAmount) else Amount((of,) if isinstance(of, str) else of)


def gauge(*metrics: str) -> Gauge:
    """Return the time average of gauges added up."""
    return Gauge(Amount(metrics))


def rate(*metrics: str) -> Rate:
    """Return an increase per second."""
    return Rate(Amount(metrics))


def increase(*metrics: str, unit: str = "") -> Increase:
    """Return an increase."""
    return Increase(Amount(metrics), unit or unit_of(metrics[0]))


def ratio(
    top: str | tuple[str, ...] | Flowing, bottom: str | tuple[str, ...] | Flowing, unit: str = "x", nothing: str = ""
) -> Ratio:
    """Return one amount over another, in ``unit``."""
    return Ratio(_flow(top), _flow(bottom), unit, nothing)


def share(top: str | tuple[str, ...] | Flowing, of: str | tuple[str, ...] | Flowing, nothing: str = "") -> Ratio:
    """Return one amount as a share of another."""
    return ratio(top, of, SHARE, nothing)


def mean_of(metric: str) -> Ratio:
    """Return the mean of an observation: of the values themselves, or a histogram's sum over its count."""
    return Ratio(Amount((metric,)), Amount((f"{metric}.count",)), unit_of(metric), "no request reported one")


def quantile_of(metric: str, q: float) -> QuantileOf:
    """Return a quantile of an observation."""
    return QuantileOf(metric, q)


def setting(metric: str) -> Setting:
    """Return a configured value."""
    return Setting(metric)


def fraction(condition: Condition) -> Fraction:
    """Return the share of the time in which a condition holds."""
    return Fraction(condition)


def amount_of_first(*options: Amount) -> EitherAmount:
    """Return the first amount that is reported."""
    return EitherAmount(options)


def first_of(*options: Expr, says: tuple[str, ...] = ()) -> FirstOf:
    """Return the first that has a value."""
    return FirstOf(options, says)


def unit_of(metric: str) -> str:
    """Return a metric's unit in the catalogue."""
    line = metric_of(metric)
    return line.unit if line else ""


def unit(expr: Expr) -> str:
    """Return the unit that follows from an expression, empty where none does."""
    match expr:
        case Ratio(unit=told) | Increase(unit=told) | Chosen(unit=told):
            return told
        case Fraction():
            return SHARE
        case Rate(amount=Amount(metrics=(first, *_))):
            return {"s": SHARE, "B": "B/s"}.get(unit_of(first), "1/s")
        case Gauge(amount=Amount(metrics=(first, *_))):
            return unit_of(first)
        case Setting(metric=metric) | Highest(metric=metric) | QuantileOf(metric=metric):
            return unit_of(metric)
        case FirstOf(options=(first, *_)):
            return unit(first)
        case Clip(inner=inner) | Within(inner=inner):
            return unit(inner)
        case OverCells(inner=inner, how=how):
            return "x" if how == "most_over_mean" else unit(inner)
        case Calc(operator=("+" | "-"), left=left, right=right):
            return unit(left) or unit(right)
    return ""


def needs(expr: object) -> tuple[str, ...]:
    """Return the metrics an expression reads, in reading order, once each."""
    return tuple(dict.fromkeys(_needs(expr)))


def _needs(node: object) -> Iterator[str]:
    if isinstance(node, Procedure | Chosen):
        yield from node.reads
    elif isinstance(node, Amount):
        yield from (metric.removesuffix(".count") for metric in node.metrics + node.less)
    elif isinstance(node, Highest | Setting | QuantileOf):
        yield node.metric
    elif isinstance(node, tuple):
        for part in node:
            yield from _needs(part)
    elif is_dataclass(node) and not isinstance(node, type):
        for field in fields(node):
            yield from _needs(getattr(node, field.name))


RUNNING, WAITING = amount("sched.running"), amount("sched.waiting")
BUSY = amount("sched.running", "sched.waiting").above(0)
"""Any request is there."""
QUEUED = WAITING.above(0)
"""Requests wait."""
