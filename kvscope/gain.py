"""What removing a cause would give: Amdahl's law on the accounting. A bound, and what may be expected.

The bound is the whole cost of the cause; expected is what the rule's experiment takes of it, where that can be told.

- ``remove_share`` reads a share s of the time: at most 1 / (1 − s). A part k of it stays: ``remaining`` of it; or
  ``remaining`` of the share ``remaining_of``, the rest of s goes; or what is not in ``wasted_share``. Expected is 1
  / (1 − s (1 − k)), or less where a baseline's share b says so: (1 − b) / (1 − s). A share that the experiment
  ``also_replaces``, as another kernel replaces attention along with the gathering, may go too: it is in the bound,
  and not expected.
- ``fit_more`` reads how many times too large admission's estimate is: as many times more requests fit, if they exist;
  1 / ``pool_usage`` at most, where that is given.
- ``run_waiting`` reads how many times more would run if none had to wait. They yield at most as many times more tokens;
  expected is what the step's fixed part says, where that is known. Where nobody waits, requests fail or come back: what
  room would bring them cannot be told.
- ``grow_batch`` reads the share h of a step that a larger batch does not lengthen. A batch n times larger takes
  h + n (1 − h) of today's step and yields n times the tokens; never more than 1 / (1 − h). ``batch_growth``
  says by how much the batch can grow, ``growth_limit`` by how much the experiment lets it. ``per_token_share`` of the
  time goes with the tokens, whatever the batch. Nothing is expected where nobody knows whether a step has a part that a
  larger batch does not lengthen.
- ``undo_change`` reads what the change moved: as many times as it grew (or shrank) is the bound and the expectation.
- ``nothing`` gains nothing: what is at stake is whether the numbers can be believed, or the answer is right.
- ``read_less`` reads how many times too much decode reads: attention's share shrinks by that factor.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from kvscope.finding import Gain
from kvscope.judge import Pair
from kvscope.playbook_schema import GainRule
from kvscope.signals.reading import Reading

Bounds = tuple[float | None, float | None]
"""What to expect, and at most; None where it cannot be told."""
_CEILING = 0.99
"""Shares are cut here: a bound above 100 × says nothing but that the accounting is off."""


def estimate(rule: GainRule, pair: Pair) -> Gain | None:
    """Return the gain of ``rule``, or None where its signal has no value."""
    reading = pair.now(rule.signal)
    if not isinstance(reading, Reading):
        return None
    expected, bound = _KINDS[rule.kind](reading.value, rule, pair)
    basis = "inferred" if reading.source.startswith("inferred") else "measured"
    return Gain(rule.of, expected, bound, rule.signal, "inferred" if basis == "inferred" else "measured")


def _remove_share(value: float, rule: GainRule, pair: Pair) -> Bounds:
    share = _clipped(value)
    touched = pair.now(rule.also_replaces) if rule.also_replaces else None
    bound = 1 / (1 - _clipped(share + (touched.value if isinstance(touched, Reading) else 0.0)))
    before, stays = pair.before(rule.signal), _stays(share, rule, pair)
    expected = [1 / (1 - share + stays)] if stays is not None else []
    if isinstance(before, Reading):
        expected.append((1 - _clipped(before.value)) / (1 - share))
    return (max(1.0, min(expected)) if expected else None), bound


def _stays(share: float, rule: GainRule, pair: Pair) -> float | None:
    """Return how much of ``share`` the experiment leaves, in the same unit; None where the rule does not say."""
    if rule.wasted_share:
        vain = pair.now(rule.wasted_share)
        return share * (1 - _clipped(vain.value)) if isinstance(vain, Reading) else None
    if rule.remaining_of:
        part = pair.now(rule.remaining_of)
        return min(share, _clipped(part.value)) * rule.remaining if isinstance(part, Reading) else None
    return share * rule.remaining if rule.remaining else None


def _clipped(share: float) -> float:
    return min(max(share, 0.0), _CEILING)


def _fit_more(value: float, rule: GainRule, pair: Pair) -> Bounds:
    used = pair.now(rule.pool_usage) if rule.pool_usage else None
    room = 1 / used.value if isinstance(used, Reading) and used.value > 0 else math.inf
    bound = max(1.0, min(value, room))
    demand = pair.now("demand_factor")
    return (min(bound, demand.value) if isinstance(demand, Reading) else None), bound


def _run_waiting(value: float, rule: GainRule, pair: Pair) -> Bounds:
    together = pair.now("steps_have_room")
    expected = min(together.value, value) if isinstance(together, Reading) else None
    return (expected, value) if value > 1 else (None, None)


def _grow_batch(value: float, rule: GainRule, pair: Pair) -> Bounds:
    apart = pair.now(rule.per_token_share) if rule.per_token_share else None
    fixed = _clipped(value)
    # Of a step's time the part set apart grows with the tokens as the larger batch's own does.
    fixed *= 1 - _clipped(apart.value) if isinstance(apart, Reading) else 1.0
    bound = 1 / (1 - fixed)
    room = pair.now(rule.batch_growth or "demand_factor")
    if not isinstance(room, Reading):
        return None, bound
    most = max(1.0, room.value)
    grown = min(most, rule.growth_limit) if rule.growth_limit else most
    known = isinstance(pair.now("steps_have_room"), Reading)
    return (_yield(grown, fixed) if known else None), min(bound, most)


def _yield(grown: float, fixed: float) -> float:
    """Return what a batch ``grown`` times as large yields where ``fixed`` of a step's time is paid once."""
    return grown / (fixed + grown * (1 - fixed))


def _read_less(value: float, _rule: GainRule, pair: Pair) -> Bounds:
    shares = [pair.now(name) for name in ("attend_share", "gather_share")]
    spent = sum(share.value for share in shares if isinstance(share, Reading))
    saved = _clipped(spent) * (1 - 1 / max(1.0, value))
    return None, 1 / (1 - saved)


def _undo_change(value: float, rule: GainRule, pair: Pair) -> Bounds:
    before = pair.before(rule.signal)
    if not isinstance(before, Reading) or before.value <= 0 or value <= 0:
        return None, None
    ratio = max(value / before.value, before.value / value)
    return ratio, ratio


def _nothing(_value: float, _rule: GainRule, _pair: Pair) -> Bounds:
    return 1.0, 1.0


_KINDS: dict[str, Callable[[float, GainRule, Pair], Bounds]] = {
    "remove_share": _remove_share,
    "fit_more": _fit_more,
    "run_waiting": _run_waiting,
    "grow_batch": _grow_batch,
    "read_less": _read_less,
    "undo_change": _undo_change,
    "nothing": _nothing,
}
