"""Within one segment: how the last third of the time compares with the first, where nobody marked a change."""

from __future__ import annotations

from kvscope.signals.accounting import prefill_time_share
from kvscope.signals.algebra import Expr, Within, gauge, rate
from kvscope.signals.latency import token_time
from kvscope.signals.registry import DOWN, NEITHER, declare


def _trend(expr: Expr) -> Expr:
    """Return the relative change (0.1 = 10 % more)."""
    return Within(expr, 2 / 3, 1.0) / Within(expr, 0.0, 1 / 3) - 1


declare(
    "kv_usage_trend",
    _trend(gauge("kv.usage_ratio")),
    NEITHER,
    "Change of the pool's use from the first third of the segment to the last: -0.5 is half.",
    unit="x",
)
declare(
    "generation_trend",
    _trend(rate("tokens.generated")),
    NEITHER,
    "Change of output tokens per second from the first third of the segment to the last: 0 is none.",
    unit="x",
)
declare(
    "tpot_trend",
    _trend(token_time),
    DOWN,
    "Change of the time per output token from the first third of the segment to the last: 0.5 is half more.",
    unit="x",
)
declare(
    "prefill_settling",
    Within(prefill_time_share, 0.0, 0.5) - Within(prefill_time_share, 2 / 3, 1.0),
    NEITHER,
    "Share of the step time spent on prompts in the first half of the segment - in the last third.",
)
