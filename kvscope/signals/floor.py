"""Where a token's time goes: what lies between steps, then the step against its bound.

The bound's parts are least times: weights, index, and KV as a span from each shared block once to each request its own.
Of the span the least enters the sum; the rest of it, as far as there is time for it, counts as unknown. What neither
covers lies below the bound: kernels that do not reach the memory's speed, launches, and the host where nobody tells it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from kvscope.bound import Floor, Load, Physics
from kvscope.signals.intervals import Intervals, intervals_of
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import procedure
from kvscope.signals.samples import Samples
from kvscope.signals.steps import ALONE, prompt_tokens, steps_of
from kvscope.signals.token_time import MEASURED, TokenTime, token_time

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
    counted: bool = False
    """Whether the bytes of the bound are the engine's own."""


def token_level(cut: Intervals, facts: Physics | None) -> TokenLevel:
    """Return the parts of a token's time, with the bound of its step where model and device are known."""
    timed = token_time(cut)
    if timed is None or timed.token_s <= 0:
        return TokenLevel(None, "", "unknown", missing=(_NO_GAPS,))
    load = step_load(cut, timed)
    asked = (
        (_NO_MODEL, facts is None or facts.lacks_model),
        (_NO_DEVICE, facts is None or facts.lacks_device),
        (_NO_LOAD, load is None),
    )
    lacking = tuple(lack for lack, so in asked if so)
    floor = facts.floor(load, _kv_dtype(cut), _ranks(cut)) if facts is not None and load is not None else None
    counted_s = _engine_read_s(cut, facts)
    if counted_s is not None:
        floor = _as_counted(floor, counted_s)
    if timed.known in MEASURED or floor is None:
        shares = timed.shares()
        missing = () if timed.known in MEASURED else lacking
        return TokenLevel(shares, timed.known, _largest(shares), timed.token_s, timed.step_s, floor, load, missing)
    weighed = counted_s is not None or (facts is not None and not facts.lacks_weights)
    seconds, span_s = _against_bound(timed, floor, _device_idle(cut), weighed)
    shares = {part: value / timed.token_s for part, value in seconds.items()}
    span_s = 0.0 if floor.unsplit_s else span_s
    limit = _largest({**shares, "kv": shares["kv"] + span_s / timed.token_s / 2})
    missing = () if weighed else (_NO_WEIGHTS,)
    if floor.unsplit_s:
        missing = (_NO_MODEL,)
    return TokenLevel(
        shares, "physics", limit, timed.token_s, timed.step_s, floor, load, missing, counted_s is not None
    )


def _engine_read_s(cut: Intervals, facts: Physics | None) -> float | None:
    """Return the least time of a pure step by the bytes and operations that the engine itself counts; None without.

    Stretches with prompts are left out: their bytes are read in steps that are not pure.
    """
    read, done, steps = cut.grown("batch.read_bytes"), cut.grown("batch.operations"), steps_of(cut)
    prompts, made = prompt_tokens(cut), cut.grown("tokens.generated")
    if facts is None or read is None or steps is None or prompts is None or made is None:
        return None
    pure = [i for i, n in enumerate(made) if n > 0 and prompts[i] <= ALONE * n and not any(prompts[i + 1 : i + 2])]
    whole = sum(steps[i] for i in pure)
    if not whole or not any(read[i] for i in pure):
        return None
    return facts.read_s(sum(read[i] for i in pure) / whole, sum(done[i] for i in pure) / whole if done else 0.0)


def _as_counted(floor: Floor | None, counted_s: float) -> Floor:
    """Return the bound with the engine's own bytes: less what KV and index take, the rest are the weights'."""
    if floor is None:
        return Floor(0.0, (0.0, 0.0), 0.0, 0.0, counted_s)
    return replace(floor, weights_s=max(0.0, counted_s - floor.kv_s[1] - floor.index_s))


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


def _kv_dtype(cut: Intervals) -> str:
    """Return how KV is kept as the segment's tags say it, or nothing."""
    return cut.window.segment.tags.get("dtype", "")


def _ranks(cut: Intervals) -> int:
    """Return the ranks that share a step as the engine's settings say, or 0."""
    said = cut.window.setting("config.tensor_parallel")
    return 0 if isinstance(said, Missing) or said < 1 else round(said)


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
    span_s = min(left, floor.kv_s[1] - floor.kv_s[0] + floor.unsplit_s)
    seconds["unknown"] = span_s if weighed else left
    seconds["below_bound"] = left - span_s if weighed else 0.0
    return seconds, span_s


def _largest(shares: dict[str, float]) -> str:
    """Return the largest part that is known and matters, else ``unknown``."""
    name = max((part for part in shares if part != "unknown"), key=lambda part: shares[part])
    return name if shares[name] >= MATTERS else "unknown"


_READS = (
    "latency.itl",
    "batch.steps",
    "tokens.generated",
    "request.tokens_in",
    "kv.usage_ratio",
    "batch.read_bytes",
    "batch.operations",
    "time.linear",
    "gpu.util",
)


def kv_share(level: TokenLevel) -> float | None:
    """Return KV's share of a token's time: as counted, else KV's share of the bound is taken as its share of the step.

    Each request is taken to read its own: an upper figure where a prefix is shared. None without a bound that has the
    weights in it.
    """
    if level.shares is None:
        return None
    if level.known in MEASURED:
        return level.shares["kv"]
    floor = level.floor
    if floor is None or not floor.weights_s or not level.token_s:
        return None
    most = min(floor.kv_s[1], max(level.step_s - floor.weights_s - floor.index_s, floor.kv_s[0]))
    return most / (most + floor.weights_s + floor.index_s) * level.step_s / level.token_s


def floor_share(level: TokenLevel) -> float | None:
    """Return how much of a step its bound explains, each request reading its own KV."""
    if level.floor is None or not level.step_s or not level.floor.weights_s:
        return None
    return min(1.0, level.floor.most_s / level.step_s)


def _read(read: Callable[[TokenLevel], float | None], unit: str) -> Callable[[Samples], Reading | Missing]:
    def formula(window: Samples) -> Reading | Missing:
        cut = intervals_of(window)
        if isinstance(cut, Missing):
            return cut
        level = token_level(cut, window.store.facts)
        value = read(level)
        if value is None:
            return level.missing[0] if level.missing else _NO_LOAD
        return Reading(
            value, 0.0, unit, f"measured: {level.known}" if level.known in MEASURED else "inferred: bound of a step"
        )

    return formula


procedure("kv_token_share", unit="ratio", reads=_READS, help="The most that reading KV takes of a token's time.")(
    _read(kv_share, "ratio")
)
procedure(
    "floor_share", unit="ratio", reads=_READS, help="Share of a decode step that its bound explains.", better="up"
)(_read(floor_share, "ratio"))
procedure("step_floor_s", unit="s", reads=_READS, help="The bound of a decode step, each request reading its own KV.")(
    _read(lambda level: level.floor.most_s if level.floor and level.floor.weights_s else None, "s")
)
procedure(
    "kv_sharing", unit="x", reads=_READS, help="How often a token in the pool counts among the contexts that read it."
)(_read(lambda level: level.load.sharing if level.load and level.load.resident else None, "x"))


@procedure(
    "device_idle_share",
    unit="ratio",
    reads=("gpu.util", "sched.running"),
    help="Share of the time with requests in which no kernel ran.",
)
def device_idle_share(window: Samples) -> Reading | Missing:
    cut = intervals_of(window)
    if isinstance(cut, Missing):
        return cut
    idle = _device_idle(cut)
    return window.absent("gpu.util") if idle is None else Reading(idle, 0.0, "ratio", "measured: NVML")
