"""The fourth reader of an expression: PromQL over one engine's own names, or nothing where it cannot mean the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kvscope.signals.algebra import (
    Amount,
    Calc,
    Clip,
    Condition,
    Constant,
    Expr,
    FirstOf,
    Flowing,
    Fraction,
    Gauge,
    Highest,
    Increase,
    Procedure,
    QuantileOf,
    Rate,
    Ratio,
    Setting,
)
from kvscope.signals.registry import SIGNALS
from probes.catalog import metric_of

WINDOW = "5m"
_STEP = "1s"
"""How finely moments are looked at, where a condition holds or not."""


class Names(Protocol):
    """How one engine's page says canonical metrics. Each returns an expression for one engine, None without a name."""

    def gauge(self, metric: str, window: str) -> str | None:
        """Return the time average."""

    def now(self, metric: str) -> str | None:
        """Return the present value."""

    def highest(self, metric: str, window: str) -> str | None:
        """Return the largest value."""

    def rate(self, metric: str, window: str) -> str | None:
        """Return a counter's rate, or that of a histogram's ``.sum`` or ``.count``."""

    def buckets(self, metric: str, window: str) -> str | None:
        """Return the rates of a histogram's buckets, by ``le``."""


def promql(asked: str | Expr, names: Names, window: str = WINDOW) -> str | None:
    """Return a signal over the last ``window``, or None where the engine or the language cannot say it."""
    return _said(SIGNALS[asked].expr if isinstance(asked, str) else asked, names, window)


def _said(expr: Expr, names: Names, window: str) -> str | None:
    match expr:
        case Constant(value=value):
            return f"{value:g}"
        case Rate(amount=amount, when=None):
            return _sum(amount, lambda metric: names.rate(metric, window))
        case Increase(amount=amount):
            found = _sum(amount, lambda metric: names.rate(metric, window))
            return f"({found}) * {_seconds(window)}" if found else None
        case Ratio(top=top, bottom=bottom):
            return _over(_flow(top, names, window), _flow(bottom, names, window))
        case Gauge(amount=amount, when=None):
            return _sum(amount, lambda metric: names.gauge(metric, window))
        case Gauge(amount=amount, when=Condition() as when):
            now, holds = _sum(amount, names.now), _holds(when, names, window)
            return _moments(f"({now}) * {holds}", holds, window) if now and holds else None
        case Fraction(condition=condition, when=when):
            return _fraction(condition, when, names, window)
        case QuantileOf(metric=metric, q=q):
            found = names.buckets(metric, window)
            return f"histogram_quantile({q:g}, {found})" if found else None
        case Setting(metric=metric):
            return names.now(metric)
        case Highest(metric=metric):
            return names.highest(metric, window)
        case FirstOf(options=options):
            return next((found for option in options if (found := _said(option, names, window))), None)
        case Clip(inner=inner, low=low, high=high):
            held = _said(inner, names, window)
            return None if held is None else f"clamp({held}, {low:g}, {high:g})".replace(", inf)", ", +Inf)")
        case Calc():
            return _calculated(expr, names, window)
        case Procedure(drawn=Expr() as drawn):
            return _said(drawn, names, window)
    return None


def _calculated(expr: Calc, names: Names, window: str) -> str | None:
    left, right = _said(expr.left, names, window), _said(expr.right, names, window)
    if expr.operator == "/" and not isinstance(expr.right, Constant):
        return _over(left, right)
    return f"({left}) {expr.operator} ({right})" if left and right else None


def _flow(of: Flowing, names: Names, window: str) -> str | None:
    options = (of,) if isinstance(of, Amount) else of.options
    for amount in options:
        line = metric_of(amount.metrics[0])
        read = names.gauge if line is not None and line.kind == "gauge" else names.rate
        found = _sum(amount, lambda metric, read=read: read(_told(metric), window))  # type: ignore[misc]
        if found:
            return found
    return None


def _told(metric: str) -> str:
    """An observation's values come to a histogram's sum."""
    line = metric_of(metric)
    return f"{metric}.sum" if line is not None and line.kind == "observation" and line.name == metric else metric


def _sum(amount: Amount, read: Callable[[str], str | None]) -> str | None:
    plus, minus = [read(metric) for metric in amount.metrics], [read(metric) for metric in amount.less]
    if None in plus or None in minus:
        return None
    return " + ".join(str(one) for one in plus) + "".join(f" - {one}" for one in minus)


def _over(top: str | None, bottom: str | None) -> str | None:
    return f"({top}) / (({bottom}) > 0)" if top and bottom else None


def _fraction(condition: Condition, when: Condition | None, names: Names, window: str) -> str | None:
    holds = _holds(condition & when if when else condition, names, window)
    if holds is None:
        return None
    if when is None:
        return f"avg_over_time(({holds})[{window}:{_STEP}])"
    within = _holds(when, names, window)
    return _moments(holds, within, window) if within else None


def _moments(value: str, held: str, window: str) -> str:
    return f"avg_over_time(({value})[{window}:{_STEP}]) / (avg_over_time(({held})[{window}:{_STEP}]) > 0)"


def _holds(condition: Condition, names: Names, window: str) -> str | None:
    """Return 1 where a condition holds now, else 0."""
    found = []
    for amount, sense, bound in condition.tests:
        value = _sum(amount, names.now)
        limit = _said(bound, names, window) if isinstance(bound, Expr) else f"{bound:g}"
        if value is None or limit is None:
            return None
        found.append(f"(({value}) {sense} bool ({limit}))")
    return " * ".join(found)


def _seconds(window: str) -> str:
    number = window.rstrip("smh")
    return f"{float(number) * {'ms': 0.001, 's': 1, 'm': 60, 'h': 3600}[window[len(number) :]]:g}"
