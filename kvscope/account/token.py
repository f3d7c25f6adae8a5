"""Where a token's time goes: what lies between steps, then the step against its bound.

The bound's parts are least times: weights, index, and KV as a span from each shared block once to each request its own.
Of the span the least enters the sum; the rest of it, as far as there is time for it, counts as unknown. What neither
covers lies below the bound: kernels that do not reach the memory's speed, launches, and the host where nobody tells it.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvscope.account.facts import Facts
from kvscope.errors import UsageError
from kvscope.floor import Floor, Load, Spread, step_floor
from kvscope.signals.intervals import Intervals
from kvscope.signals.reading import Missing
from kvscope.signals.token_time import TokenTime, token_time

MATTERS = 0.1
"""A part of a token below this is not what limits it: noise of gaps between tokens is some hundredths."""
_NO_GAPS = Missing(
    "nobody tells the gaps between tokens or the parts of a step",
    "a profiler trace of a few steps (kvscope diagnose TRACE.json), or an engine that reports inter-token latency",
)
_NO_MODEL = Missing("the model is not known: no bound of a step", "--config PATH of its config.json")
_NO_DEVICE = Missing("the device is not known: no bound of a step", "--gpu NAME, such as H200")
_NO_WEIGHTS = Missing(
    "the weights cannot be counted from this config",
    "the model's whole config.json, sizes of its MLPs and vocabulary included",
)
_NO_LOAD = Missing(
    "batch or context of a step are not told: no bound of a step", "an engine that reports request lengths and steps"
)


@dataclass(frozen=True, slots=True)
class TokenLevel:
    """``shares`` of one token's time (None where nothing is told); ``limit`` names the largest part that is known."""

    shares: dict[str, float] | None
    known: str
    limit: str
    token_s: float = 0.0
    step_s: float = 0.0
    floor: Floor | None = None
    load: Load | None = None
    missing: tuple[Missing, ...] = ()


def token_level(cut: Intervals, facts: Facts) -> TokenLevel:
    """Return the parts of a token's time, with the bound of its step where model and device are known."""
    timed = token_time(cut)
    if timed is None or timed.token_s <= 0:
        return TokenLevel(None, "", "unknown", missing=(_NO_GAPS,))
    load = step_load(cut, timed)
    lacking = tuple(
        lack
        for lack, there in ((_NO_MODEL, facts.model), (_NO_DEVICE, facts.device), (_NO_LOAD, load))
        if there is None
    )
    floor = _floor(cut, load, facts) if load is not None else None
    if timed.known == "counted" or floor is None:
        shares = timed.shares()
        missing = () if timed.known == "counted" else lacking
        return TokenLevel(shares, timed.known, _largest(shares), timed.token_s, timed.step_s, floor, load, missing)
    weighed = facts.model is not None and facts.model.weights is not None
    seconds, span_s = _against_bound(timed, floor, _device_idle(cut), weighed)
    shares = {part: value / timed.token_s for part, value in seconds.items()}
    limit = _largest({**shares, "kv": shares["kv"] + span_s / timed.token_s / 2})
    missing = () if weighed else (_NO_WEIGHTS,)
    return TokenLevel(shares, "physics", limit, timed.token_s, timed.step_s, floor, load, missing)


def step_load(cut: Intervals, timed: TokenTime) -> Load | None:
    """Return what a pure step computed: requests, their mean context, the tokens held for them, the tokens checked."""
    batch, context = timed.batch, _context(cut)
    if batch is None or context is None or batch <= 0:
        return None
    each = _tokens_accepted(cut)
    requests = max(1.0, batch / each)
    return Load(requests, context, _resident(cut), requests * _tokens_checked(cut))


def _context(cut: Intervals) -> float | None:
    """Return the mean context of a request that decodes: its prompt and half its answer."""
    prompt = cut.mean_of("request.tokens_in")
    if prompt is not None:
        return prompt + (cut.mean_of("request.tokens_out") or 0.0) / 2
    reported = cut.gauge("batch.context_tokens")
    known = [value for value in reported or () if value > 0]
    return sum(known) / len(known) if known else None


def _resident(cut: Intervals) -> float | None:
    """Return the tokens held, on average over the tokens generated; shared ones count once."""
    usage, capacity = cut.gauge("kv.usage_ratio"), cut.window.setting("kv.capacity_tokens")
    made = cut.grown("tokens.generated")
    if usage is None or isinstance(capacity, Missing) or made is None or sum(made) <= 0:
        return None
    held = sum(n * (usage[i] + usage[i + 1]) / 2 for i, n in enumerate(made))
    return held / sum(made) * capacity or None


def _tokens_accepted(cut: Intervals) -> float:
    """Return tokens a request gains in a step: more than one with speculative decoding."""
    drafts, accepted = cut.total("spec.drafts"), cut.total("spec.accepted_tokens")
    return 1.0 + accepted / drafts if drafts and accepted else 1.0


def _tokens_checked(cut: Intervals) -> float:
    """Return tokens a step computes for a request: its own and those proposed."""
    drafts, proposed = cut.total("spec.drafts"), cut.total("spec.draft_tokens")
    return 1.0 + proposed / drafts if drafts and proposed else 1.0


def _floor(cut: Intervals, load: Load, facts: Facts) -> Floor | None:
    if facts.model is None or facts.device is None:
        return None
    try:
        forms = facts.model.forms(_kv_dtype(cut, facts))
        return step_floor(facts.model, load, facts.device, forms, Spread.tensor_parallel(_ranks(cut, facts)))
    except UsageError:
        return None


def _kv_dtype(cut: Intervals, facts: Facts) -> str:
    """Return how KV is kept: as the segment's tags say, else as its source does, else as the model computes."""
    return cut.window.segment.tags.get("dtype") or facts.kv_dtype


def _ranks(cut: Intervals, facts: Facts) -> int:
    """Return the ranks that share a step: as the engine's settings say, else one."""
    said = cut.window.setting("config.tensor_parallel")
    return facts.tp if isinstance(said, Missing) or said < 1 else round(said)


def _device_idle(cut: Intervals) -> float | None:
    """Return the share of time in which no kernel ran, while requests did."""
    busy, running = cut.gauge("gpu.util"), cut.gauge("sched.running")
    if busy is None:
        return None
    seen = [1.0 - share for share, n in zip(busy, running or busy, strict=True) if n > 0]
    return sum(seen) / len(seen) if seen else None


def _against_bound(timed: TokenTime, floor: Floor, idle: float | None, weighed: bool) -> tuple[dict[str, float], float]:
    """Return seconds by part, and those of the KV span that are unknown: KV read again, or something else.

    Where nobody knows what the weights weigh, what no other part takes may be theirs: it is unknown, too.
    """
    seconds, left = dict(timed.seconds), timed.step_s
    seconds["unknown"] = 0.0
    for part, least in (("weights", floor.weights_s), ("index", floor.index_s), ("kv", floor.kv_s[0])):
        seconds[part] = min(left, least)
        left -= seconds[part]
    if idle is not None:
        seconds["host"] = min(left, idle * timed.step_s)
        left -= seconds["host"]
    span_s = min(left, floor.kv_s[1] - floor.kv_s[0])
    seconds["unknown"] = span_s if weighed else left
    seconds["below_bound"] = left - span_s if weighed else 0.0
    return seconds, span_s


def _largest(shares: dict[str, float]) -> str:
    """Return the largest part that is known and matters, else ``unknown``."""
    name = max((part for part in shares if part != "unknown"), key=lambda part: shares[part])
    return name if shares[name] >= MATTERS else "unknown"
