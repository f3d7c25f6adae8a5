"""What stops more requests from running: of the watched time, the part that each limit held.

Time is counted, not requests: at any moment the scheduler either holds a request back or it does not. Engines that
count the steps in which they held one back are taken at their word; for the others the reason is inferred from what a
scheduler can do. A request waits at the end of a step only when that step could not take it in, so:

- where preemption goes on, or what is free when the pool is fullest is less than the next prompt, the pool stops it;
- else where steps are full of prompt tokens and the number that run varies, each step's token budget does;
- else the cap does: no other reason is left. Where the cap is known, it must be reached.

Gauges stand still in a long step: each stretch of ``CHUNK_S`` is judged by the fullest it shows, and by Little's law.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kvscope.signals.intervals import Intervals, intervals_of, once
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import procedure
from kvscope.signals.samples import Cell, Samples
from kvscope.signals.steps import prompt_tokens, running_of, step_times, steps_of, waiting_of
from probes.catalog import REPLICA
from probes.sample import Labels

PARTS = ("idle", "demand", "cap", "pool", "token_budget", "deferred", "rejected", "unknown")
CHUNK_S = 10.0
"""Long enough for a gauge to move through several long steps, short enough to see a limit come and go."""
FULL = 0.9
"""Usage from which a pool counts as full where nobody says how long prompts are."""
HALF = 0.5
"""Below it the pool stops nobody, however many requests it would hold if they shared nothing."""
AT_CAP = 0.8
"""Running over what may run from which the cap is reached: a gauge is read after a step, without those it ended."""
EXACT = 0.9
"""Share of the moments with a queue in which exactly the most ran: then it is a cap, however full the steps are."""
FULL_STEP = 256
"""Prompt tokens per step from which steps may be full: half of the least budget (512) that engines are run with."""
HALF_BUDGET = 0.5
"""Mean fill of steps from which their budget holds others back, where the budget is known."""
SHARED_FULL, SPILL, FLAT = 0.85, 0.1, 0.8
"""A pool that slots share is full from here on (the next prompt does not fit); prompts not yet stored are told as held;
share of the moments with several slots busy in which it must be full where nobody says that it is shared."""
WAITS = 0.5
COUNTED = {
    "pool": "sched.kv_bound_steps",
    "cap": "sched.cap_bound_steps",
    "deferred": "sched.deferred_steps",
    "token_budget": "sched.budget_bound_steps",
}
"""Parts that some engines count in steps, in the order in which one step counts for one of them."""
_SLOTS = "llama.cpp"
"""Who waits there waits for a slot: for any of them, or (while one is free) for the one it asked for."""


@dataclass(frozen=True, slots=True)
class Admission:
    """Shares of the watched time (they add up to 1) and how they are known: ``counted`` or ``inferred``."""

    shares: dict[str, float]
    known: str
    watched_s: float
    cap: float | None = None
    """The most that may run: as configured, else where the plateau lay while the cap held."""
    fits: float | None = None
    """Mean requests the pool holds if they share nothing."""
    seconds: dict[str, float] = field(default_factory=dict)


def admission(window: Samples) -> Admission | Missing:
    """Account for the segment's time; Missing where nobody reports requests.

    A fleet's is the mean of its replicas': requests that wait at one of them say nothing of the slots of another.
    """
    names = {dict(labels).get(REPLICA, "") for labels in window.store.keys("sched.running")} - {""}
    if window.cell is None and len(names) > 1:
        own = [admission(window.only(Cell(REPLICA, name))) for name in sorted(names)]
        return _together([one for one in own if isinstance(one, Admission)]) or _missing(own)
    cut = intervals_of(window)
    if isinstance(cut, Missing):
        return cut
    running = running_of(cut)
    counted = _counted(cut)
    if counted is None and running is None:
        return window_absent(window)
    seconds = counted if counted is not None else _inferred(cut, running or [])
    whole = sum(seconds.values())
    if whole <= 0:
        return Missing("the engine was not watched in this segment", "watch for longer")
    shares = {part: seconds.get(part, 0.0) / whole for part in PARTS}
    known = "inferred" if counted is None else "counted"
    return Admission(shares, known, whole, _cap(cut, running, seconds["cap"] > 0), fits(cut), seconds)


def _together(own: Sequence[Admission]) -> Admission | None:
    if not own:
        return None
    seconds = {part: sum(one.seconds.get(part, 0.0) for one in own) for part in PARTS}
    watched, caps, rooms = sum(seconds.values()), [one.cap for one in own], [one.fits for one in own]
    return Admission(
        {part: held / watched for part, held in seconds.items()},
        "counted" if all(one.known == "counted" for one in own) else "inferred",
        watched,
        sum(filter(None, caps)) if all(caps) else None,
        sum(filter(None, rooms)) if all(rooms) else None,
        seconds,
    )


def _missing(own: Sequence[Admission | Missing]) -> Missing:
    return next(one for one in own if isinstance(one, Missing))


def window_absent(window: Samples) -> Missing:
    """Say that nobody reports running requests, with what would."""
    level = window.level("sched.running")
    return level if isinstance(level, Missing) else Missing("too few samples of running requests", "watch for longer")


def _counted(cut: Intervals) -> dict[str, float] | None:
    """Return seconds by the steps an engine counts itself; None where it counts none or does not tell its time."""
    steps, busy = cut.grown("batch.steps"), cut.grown("time.step")
    columns = {part: cut.grown(metric) for part, metric in COUNTED.items()}
    if steps is None or busy is None or columns["cap"] is None or columns["pool"] is None:
        return None
    prefill, prefilling = cut.grown("time.prefill"), _prefilling_steps(cut, steps)
    seconds = dict.fromkeys(PARTS, 0.0)
    for index, dt in enumerate(cut.lengths):
        working, made = min(dt, busy[index]), steps[index]
        # A step whose budget ran out had a prompt in it, and that is what makes it long.
        prompts = min(working, prefill[index]) if prefill is not None else 0.0
        seconds["idle"] += dt - working
        left = left_of_prompts = 1.0
        for part, column in columns.items():
            held = column[index] if column is not None else 0.0
            among = prefilling[index] if part == "token_budget" else made
            share = min(left, held / made) if made else 0.0
            share_of_prompts = min(left_of_prompts, held / among) if among else share
            seconds[part] += share * (working - prompts) + share_of_prompts * prompts
            left, left_of_prompts = left - share, left_of_prompts - share_of_prompts
        seconds["demand"] += left * (working - prompts) + left_of_prompts * prompts
    return seconds


def _prefilling_steps(cut: Intervals, steps: Sequence[float]) -> Sequence[float]:
    """Return the steps of each stretch that computed prompt tokens; all of them where that is not told."""
    decode, mixed = cut.grown("batch.decode_steps"), cut.grown("batch.mixed_steps")
    if decode is None or mixed is None:
        return steps
    rows = zip(steps, decode, mixed, strict=True)
    return [both + max(0.0, all_ - decoding) for all_, decoding, both in rows]


def _inferred(cut: Intervals, running: Sequence[float]) -> dict[str, float]:
    waiting, deferred = waiting_of(cut), cut.gauge("sched.deferred")
    weights, busy, cap = cut.weights(), busy_shares(cut, running), _cap(cut, None, held=False)
    # No word of a queue, and of no limit or all slots taken: others may wait. A front end counts those that wait, too.
    silent = cap is None and cut.gauge("kv.usage_ratio") is None
    untold = cut.gauge("sched.waiting") is None and (silent or (cap is not None and max(running) <= cap))
    shared, seconds = _shared_pool(cut, running), dict.fromkeys(PARTS, 0.0)
    for chunk in _chunks(cut):
        held, told_full = [], _grew(cut, "events.kv_full", chunk) > 0
        blocked = open_s = idle = put_off = starved = 0.0
        for k in chunk:
            # Requests that failed for want of room leave an engine empty that nobody left alone.
            if waiting[k] < WAITS and (told_full or (running[k] > 0 and shared and shared[k] >= SHARED_FULL)):
                starved += weights[k]
            elif waiting[k] < WAITS:
                open_s += weights[k] * busy[k]
                idle += weights[k] * (1 - busy[k])
            elif deferred is not None and deferred[k] >= waiting[k]:
                put_off += weights[k]
            else:
                blocked += weights[k]
                held.append(k)
        turned_away = _turned_away(cut, chunk)
        for part, share in _reasons(cut, running, chunk, held).items() if held else ():
            seconds[part] += (1 - turned_away) * share * blocked
        seconds["rejected"] += turned_away * (blocked + open_s + put_off + starved)
        seconds["pool"] += (1 - turned_away) * starved
        seconds["deferred"] += (1 - turned_away) * put_off
        part = "unknown" if untold and (silent or max(running[k] for k in chunk) == cap) else "demand"
        seconds[part] += (1 - turned_away) * open_s
        seconds["idle"] += idle
    return seconds


def _shared_pool(cut: Intervals, running: Sequence[float]) -> list[float] | None:
    """Return how full the one pool is that llama.cpp's slots share (``--kv-unified``); None where each has its own.

    ``/slots`` tells every slot the size of the whole pool, so their sum is slots times too large. Where nobody says
    which it is: slots that share one never hold more than its size together, and several that stay near it do not by
    chance. Such a slot needs no queue to be starved: when the pool is full its decode fails, and so does the request.
    """
    slots, used = cut.window.setting("sched.max_running"), cut.gauge("kv.used_tokens")
    sizes, said = cut.window.setting("kv.capacity_tokens"), cut.window.setting("config.kv_unified")
    if _engine(cut) != _SLOTS or used is None or isinstance(slots, Missing) or isinstance(sizes, Missing):
        return None
    if slots < 2 or sizes <= 0 or (not isinstance(said, Missing) and said < 1):
        return None
    full = [held / (sizes / slots) for held in used]
    if isinstance(said, Missing):
        several = [share for share, n in zip(full, running, strict=True) if n >= 2]
        near = sum(share >= SHARED_FULL for share in several)
        if not several or max(several) > 1 + SPILL or near < FLAT * len(several):
            return None
    return full


def _engine(cut: Intervals) -> str:
    return next((dict(labels).get("engine", "") for labels in cut.window.keys("engine.info")), "")


def busy_shares(cut: Intervals, running: Sequence[float]) -> list[float]:
    """Return the share of time in which something ran, at each sample: by the gauge, else by the steps counted."""
    steps = cut.grown("batch.steps") or cut.grown("tokens.generated") or [0.0] * len(cut.lengths)
    timed = step_times(cut)
    step_s = timed.token_s if timed else 0.0
    found = [
        min(1.0, n * step_s / dt) if dt and step_s else 0.5 * bool(n) for n, dt in zip(steps, cut.lengths, strict=True)
    ]
    sides = [found[0], *found, found[-1]]
    return [1.0 if n > 0 else (sides[k] + sides[k + 1]) / 2 for k, n in enumerate(running)]


def _chunks(cut: Intervals) -> list[range]:
    """Cut the samples into stretches of about ``CHUNK_S``, at least three samples each."""
    found, first = [], 0
    for k, t in enumerate(cut.times):
        if t - cut.times[first] >= CHUNK_S and k - first >= 3:
            found.append(range(first, k))
            first = k
    last = range(first, len(cut.times))
    if found and len(last) < 3:
        return [*found[:-1], range(found[-1].start, last.stop)]
    return [*found, last]


def _between(chunk: range, cut: Intervals) -> range:
    """Return the stretches from before the first sample of a chunk to behind its last."""
    return range(max(0, chunk.start - 1), min(len(cut.lengths), chunk.stop))


def _grew(cut: Intervals, metric: str, chunk: range) -> float:
    grown = cut.grown(metric)
    return sum(grown[i] for i in _between(chunk, cut)) if grown is not None else 0.0


def _turned_away(cut: Intervals, chunk: range) -> float:
    """Return rejected requests per admitted one, at most 1: from then on the door is what stops most."""
    rejected = _grew(cut, "sched.rejections", chunk)
    if not rejected:
        return 0.0
    admitted = max(_grew(cut, "latency.ttft.count", chunk), _grew(cut, "requests.finished", chunk))
    return min(1.0, rejected / admitted) if admitted else 1.0


def _reasons(cut: Intervals, running: Sequence[float], chunk: range, held: Sequence[int]) -> dict[str, float]:
    """Share out the time in which requests were held back: one reason a chunk, but for prompts of mixed length."""
    if _engine(cut) == _SLOTS:
        return _for_a_slot(cut, running, held)
    pool = _pool(cut, running, chunk)
    if pool and not _grew(cut, "sched.preemptions", chunk) and not _grew(cut, "events.kv_full", chunk):
        pool *= _without_room(cut, running, chunk, held)
    return {"pool": pool, _other(cut, running, chunk, held): 1 - pool}


def _for_a_slot(cut: Intervals, running: Sequence[float], held: Sequence[int]) -> dict[str, float]:
    """Return whether those waiting waited for any slot (the cap) or, with one free, for a slot of their own."""
    slots = cut.window.setting("sched.max_running")
    if isinstance(slots, Missing) or slots <= 0:
        return {"cap": 1.0}
    full = sum(running[k] >= slots for k in held) / len(held)
    return {"cap": full, "deferred": 1 - full}


def _pool(cut: Intervals, running: Sequence[float], chunk: range) -> float:
    """Return the share of those waiting that the pool has no room for."""
    if _grew(cut, "sched.preemptions", chunk) or _grew(cut, "events.kv_full", chunk):
        return 1.0
    around = range(max(0, chunk.start - 1), min(len(cut.times), chunk.stop + 1))
    usage = cut.gauge("kv.usage_ratio") or _booked(cut)
    if usage is None:
        return 0.0
    fullest, capacity, holds = max(usage[k] for k in around), cut.window.setting("kv.capacity_tokens"), fits(cut)
    if fullest >= HALF and holds is not None:
        ran = max(max(running[k] for k in around), running_by_little(cut) or 0.0)
        if ran > holds - 1:
            return 1.0
    if isinstance(capacity, Missing) or holds is None:
        return float(fullest >= FULL)
    return longer_than(cut, (1 - fullest) * capacity)


def _without_room(cut: Intervals, running: Sequence[float], chunk: range, held: Sequence[int]) -> float:
    """Return the share of the moments with a queue in which those waiting had no room; 1 from half of them on.

    Where all of them beside those running are no more than ran at once a moment before, and a prompt fits what is free,
    they have just come and wait for the step that runs. A gauge is read after a step, without those it ended: free room
    alone proves nothing.
    """
    usage, capacity = cut.gauge("kv.usage_ratio") or _booked(cut), cut.window.setting("kv.capacity_tokens")
    if usage is None or isinstance(capacity, Missing):
        return 1.0
    most, waiting = max(running[k] for k in chunk), waiting_of(cut)
    full = sum(
        1.0 if running[k] + waiting[k] > most else longer_than(cut, (1 - usage[k]) * capacity) for k in held
    ) / len(held)
    return 1.0 if full >= HALF else full


@once
def _booked(cut: Intervals) -> list[float] | None:
    """Return the share of the pool that is booked for the batch at worst, where an engine admits by that."""
    booked, capacity = cut.gauge("kv.budget_tokens"), cut.window.setting("kv.capacity_tokens")
    if booked is None or isinstance(capacity, Missing) or capacity <= 0:
        return None
    return [min(1.0, tokens / capacity) for tokens in booked]


def _other(cut: Intervals, running: Sequence[float], chunk: range, held: Sequence[int]) -> str:
    """Return why room in the pool is not used: the cap, the token budget, or nobody can tell."""
    most = max(running[k] for k in chunk)
    cap, full = cut.window.setting("sched.max_running"), _full_steps(cut, held)
    if not isinstance(cap, Missing) and cap > 0:
        return "cap" if most >= AT_CAP * cap else "token_budget" if full else "unknown"
    if most < 1:
        return "token_budget" if full else "unknown"
    if full and sum(running[k] >= most for k in held) < EXACT * len(held):
        return "token_budget"
    # Room in the pool and in the steps: only a cap is left, though nobody says how high it is.
    return "cap" if full or cut.gauge("kv.usage_ratio") is not None else "unknown"


def _full_steps(cut: Intervals, held: Sequence[int]) -> bool:
    """Whether steps, while others waited, had so many prompt tokens in them that there was no room for theirs."""
    prompts, steps = prompt_tokens(cut), steps_of(cut)
    if prompts is None or steps is None:
        return False
    stretches = {i for k in held for i in (k - 1, k) if 0 <= i < len(cut.lengths)}
    made = sum(steps[i] for i in stretches)
    mean = sum(prompts[i] for i in stretches) / made if made else 0.0
    budget = cut.window.setting("config.max_batched_tokens")
    return mean >= (FULL_STEP if isinstance(budget, Missing) or budget <= 0 else HALF_BUDGET * budget)


def _cap(cut: Intervals, running: Sequence[float] | None, held: bool) -> float | None:
    cap = cut.window.setting("sched.max_running")
    if not isinstance(cap, Missing) and cap > 0:
        return cap
    waiting = cut.gauge("sched.waiting")
    if running is None or waiting is None or not held:
        return None
    return max((n for n, others in zip(running, waiting, strict=True) if others >= WAITS), default=None)


@once
def running_by_little(cut: Intervals) -> float | None:
    """Return requests running on average while any did, from their times: a gauge stands still in a long step."""
    spent = [cut.sum_of(metric) for metric in ("latency.prefill_time", "latency.decode_time")]
    running = cut.gauge("sched.running")
    if running is None or None in spent:
        return None
    busy_s = sum(weight for weight, n in zip(cut.weights(), running, strict=True) if n > 0)
    return sum(one for one in spent if one is not None) / busy_s if busy_s else None


@once
def fits(cut: Intervals) -> float | None:
    """Return how many requests the pool holds on average: its tokens over a mean prompt and half a mean answer."""
    capacity, prompt = cut.window.setting("kv.capacity_tokens"), cut.mean_of("request.tokens_in")
    if isinstance(capacity, Missing) or not prompt:
        return None
    return capacity / (prompt + (cut.mean_of("request.tokens_out") or 0.0) / 2)


def longer_than(cut: Intervals, free: float) -> float:
    """Return the share of prompts that need more than ``free`` tokens, weighted by length: long ones block longer."""
    lengths = _lengths(cut)
    whole = sum(weight * (low + high) / 2 for low, high, weight in lengths)
    if whole <= 0:
        return 0.0
    over = sum(
        weight * (low + high) / 2 * min(1.0, max(0.0, (high - free) / (high - low or 1.0)))
        for low, high, weight in lengths
    )
    return over / whole


@once
def _lengths(cut: Intervals) -> list[tuple[float, float, float]]:
    """Return (shortest, longest, prompts): the page's buckets, narrowed to the mean where one holds them all."""
    metric = "request.tokens_in"
    seen = [value for _, values in cut.window.slices(metric).values() for value in values]
    if seen:
        return [(value, value, 1.0) for value in seen]
    totals: dict[float, float] = {}
    buckets = cut.window.parts(f"{metric}.bucket")
    for labels, flow in () if isinstance(buckets, Missing) else buckets.items():
        bound = _bound(labels)
        totals[bound] = totals.get(bound, 0.0) + cut.window.whole(flow)
    found, low, below = [], 0.0, 0.0
    for bound in sorted(totals):
        count = max(0.0, totals[bound] - below)
        if count:
            found.append((low, bound if math.isfinite(bound) else 2 * low, count))
        below, low = max(below, totals[bound]), bound
    mean, whole = cut.mean_of(metric), sum(count for _, _, count in found)
    if mean and (not found or max(count for _, _, count in found) >= FULL * whole):
        return [(mean, mean, 1.0)]
    return found


def _bound(labels: Labels) -> float:
    text = dict(labels).get("le", "+Inf")
    return math.inf if text in ("+Inf", "inf", "") else float(text)


_NEEDS = ("sched.running", "sched.waiting", "kv.usage_ratio", "sched.max_running", *COUNTED.values())
_SAYS = {
    "idle": "nothing ran and nothing waited",
    "demand": "some ran and none waited: clients sent no more",
    "cap": "requests waited while as many ran as may run",
    "pool": "requests waited for KV blocks",
    "token_budget": "requests waited because prompts used up the tokens a step may compute",
    "deferred": "requests waited only for reasons other than capacity",
    "rejected": "requests were turned away at the door",
    "unknown": "requests waited and nobody tells for what",
}


def _share(part: str) -> Callable[[Samples], Reading | Missing]:
    def formula(window: Samples) -> Reading | Missing:
        found = admission(window)
        if isinstance(found, Missing):
            return found
        how = (
            "measured: steps counted by the engine" if found.known == "counted" else "inferred: queue, pool and plateau"
        )
        return Reading(found.shares[part], 0.0, "ratio", how)

    return formula


for _part, _what in _SAYS.items():
    procedure(f"limit_{_part}_share", unit="ratio", reads=_NEEDS, help=f"Share of the time in which {_what}.")(
        _share(_part)
    )
