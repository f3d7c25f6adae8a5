"""One request explained: where its time went, whom it waited for, what the engine did and lost meanwhile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from kvscope.amounts import amount
from kvscope.store import Store

MOST_REQUESTS = 512
METRICS = (
    "request.tokens_in",
    "request.tokens_out",
    "sched.queue_time",
    "latency.prefill_time",
    "latency.ttft",
    "latency.tpot",
    "latency.e2e",
    "latency.decode_time",
    "latency.inference_time",
    "request.tokens_computed",
    "request.kv_bytes",
    "request.preemptions",
    "request.prefix_hits",
)
"""What rows of single requests hold; their values of one request share a time, that of its end."""
AT_ONCE = 0.01
"""Two requests less than so many seconds beside each other did not meet."""
_NAMED = 3
_STALLS = {
    "tier.stall_time": "KV was fetched from a slower tier",
    "alloc.stall_time": "device memory was freed and got again",
}
"""Counters of time that steps stood still, and for what."""


@dataclass(frozen=True)
class Request:
    """A finished request: ``key`` finds it again, ``t`` is its end (epoch seconds), ``row`` metric → value."""

    key: str
    t: float
    row: dict[str, float]

    def get(self, metric: str) -> float | None:
        return self.row.get(metric)

    @property
    def whole(self) -> float | None:
        """From its arrival to its last token, in seconds; from its first step where nobody tells when it arrived."""
        whole = self.get("latency.e2e")
        return whole if whole is not None else self.get("latency.inference_time")

    @property
    def prompt(self) -> float | None:
        """Prompt tokens; those computed where nobody tells how many came from the cache."""
        told = self.get("request.tokens_in")
        return told if told is not None else self.get("request.tokens_computed")

    @cached_property
    def parts(self) -> tuple[tuple[str, float], ...]:
        """Queue, prefill and decode with their seconds, as far as they are told or follow; they add up to the whole."""
        queue, whole = self.get("sched.queue_time"), self.get("latency.e2e")
        prefill = self.get("latency.prefill_time")
        first = self.get("latency.ttft")
        if prefill is None and queue is not None and first is not None:
            prefill = max(first - queue, 0.0)
        decode = self.get("latency.decode_time")
        if decode is None and whole is not None and queue is not None and prefill is not None:
            decode = max(whole - queue - prefill, 0.0)
        told = (("queue", queue), ("prefill", prefill), ("decode", decode))
        found = [(name, value) for name, value in told if value is not None]
        rest = whole - sum(value for _, value in found) if whole is not None and len(found) == len(told) else 0.0
        if whole is not None and rest > max(0.05 * whole, 0.001):
            found.append(("outside the engine's steps", rest))
        return tuple(found)

    @cached_property
    def spans(self) -> dict[str, tuple[float, float]]:
        """When it waited, computed its prompt and decoded: start and end, seconds since the epoch.

        Counted back from its first token, where that is told: what a front end takes lies before the queue.
        """
        whole, told = self.whole, dict(self.parts)
        if whole is None or "prefill" not in told:
            return {}
        arrived = self.t - whole
        if "queue" not in told:
            first = min(arrived + told["prefill"], self.t)
            return {"prefill": (arrived, first), "decode": (first, self.t)} if self.get("latency.e2e") is None else {}
        ttft = self.get("latency.ttft")
        first = min(arrived + (ttft if ttft is not None else told["queue"] + told["prefill"]), self.t)
        started = max(first - told["prefill"], arrived)
        return {
            "queue": (max(started - told["queue"], arrived), started),
            "prefill": (started, first),
            "decode": (first, self.t),
        }


@dataclass(frozen=True, slots=True)
class Explained:
    """A request's ``parts`` (name, seconds), and what is known of it in lines; ``missing``: what nobody told."""

    request: Request
    parts: tuple[tuple[str, float], ...]
    lines: tuple[str, ...]
    missing: tuple[str, ...]


def finished(store: Store, until_s: float | None = None) -> dict[str, Request]:
    """Key → the newest finished requests, oldest first: the n-th values of one time belong together."""
    rows: dict[tuple[float, int], dict[str, float]] = {}
    for metric in METRICS:
        for labels in store.keys(metric):
            times, values = store.series(metric, labels, None, until_s)
            seen: dict[float, int] = defaultdict(int)
            for t, value in list(zip(times, values, strict=True))[-MOST_REQUESTS:]:
                rows.setdefault((t, seen[t]), {})[metric] = value
                seen[t] += 1
    whole = [key for key in sorted(rows) if "request.tokens_out" in rows[key]][-MOST_REQUESTS:]
    return {f"{t!r}:{nth}": Request(f"{t!r}:{nth}", t, rows[t, nth]) for t, nth in whole}


def explain(request: Request, among: Iterable[Request], store: Store) -> Explained:
    """Explain one request by the others of its time and by what the engine counted meanwhile."""
    others = [one for one in among if one.key != request.key and one.spans]
    lines = [_size(request), *_waited(request, others, store), *_shared(request, others), *_lost(request, store)]
    return Explained(request, request.parts, tuple(line for line in lines if line), tuple(_missing(request, store)))


def _size(request: Request) -> str:
    told, out = request.get("request.tokens_in"), request.get("request.tokens_out")
    hits, computed = request.get("request.prefix_hits"), request.get("request.tokens_computed")
    if told is None and computed is not None:
        return f"{computed:.0f} prompt tokens computed, {out or 0:.0f} out"
    line = f"{'unknown' if told is None else f'{told:.0f}'} prompt tokens in, {out or 0:.0f} out"
    if hits is not None:
        line += f"; {hits:.0f} of the prompt ({hits / told if told else 0:.0%}) came from the prefix cache"
    return line


def _waited(request: Request, others: Sequence[Request], store: Store) -> list[str]:
    """Whom it waited for: who was in the engine while it stood in the queue, the longest first."""
    span = request.spans.get("queue")
    if span is None or span[1] - span[0] < AT_ONCE:
        return ["it did not wait to be scheduled"] if span else []
    met = []
    for other in others:
        inside = (other.spans["prefill"][0], other.t)
        if (overlap := _overlap(span, inside)) >= AT_ONCE:
            met.append((overlap, _overlap(span, other.spans["prefill"]), other))
    waited = span[1] - span[0]
    if not met:
        return [f"it waited {amount(waited, 's')}; no request that ended since was in the engine then"]
    met.sort(key=lambda one: (-one[0], one[2].t))
    busy = sum(prefill for _, prefill, _ in met)
    named = "; ".join(
        f"{one.prompt or 0:.0f} → {one.get('request.tokens_out') or 0:.0f} tokens for "
        f"{amount(overlap, 's')} of it" + (f" ({amount(prefill, 's')} its prompt)" if prefill >= AT_ONCE else "")
        for overlap, prefill, one in met[:_NAMED]
    )
    more = f"; {len(met) - _NAMED} more" if len(met) > _NAMED else ""
    others_were = "another was" if len(met) == 1 else f"{len(met)} others were"
    lines = [f"it waited {amount(waited, 's')} while {others_were} in the engine: {named}{more}"]
    if busy >= 0.5 * waited:
        lines.append(f"prompts of others were computed for {amount(busy, 's')} of that time, added up")
    if because := _because(span, store):
        lines.append(because)
    return lines


def _because(span: tuple[float, float], store: Store) -> str:
    """What kept it out, by what the engine counted or showed in that time."""
    for metric, says in (
        ("sched.cap_bound_steps", "as many ran as may run"),
        ("sched.kv_bound_steps", "KV memory was short"),
        ("sched.budget_bound_steps", "the tokens of a step were spoken for"),
    ):
        if (steps := _grown(store, metric, span)) > 0:
            return f"in {steps:.0f} of the steps meanwhile {says}"
    usage, running = _mean(store, "kv.usage_ratio", span), _mean(store, "sched.running", span)
    cap = store.latest("sched.max_running", (), span[1])
    if usage is not None and usage >= 0.95:
        return f"KV usage stood at {usage:.0%}"
    if running is not None and cap and running >= 0.95 * cap:
        return f"{running:.0f} requests ran, {cap:.0f} may"
    return ""


def _shared(request: Request, others: Sequence[Request]) -> list[str]:
    """Whose prompts were computed beside its own and between its tokens: such steps hold every running request up."""
    lines = []
    for part, says in (("prefill", "its prompt was computed"), ("decode", "it decoded")):
        span = request.spans.get(part)
        prompts = [(_overlap(span, one.spans["prefill"]), one) for one in others] if span else []
        met = [(overlap, one) for overlap, one in prompts if overlap >= AT_ONCE]
        if met:
            tokens = sum(one.prompt or 0.0 for _, one in met)
            held = sum(overlap for overlap, _ in met)
            whose = f"{len(met)} prompts of others" if len(met) > 1 else "the prompt of another"
            computed = f"({tokens:.0f} tokens) {'were' if len(met) > 1 else 'was'} computed beside it"
            lines.append(f"while {says}, {whose} {computed}, for {amount(held, 's')} added up")
    return lines


def _lost(request: Request, store: Store) -> list[str]:
    """What went meanwhile: its own KV by preemption, other KV by eviction."""
    lines = []
    if (times := request.get("request.preemptions") or 0.0) > 0:
        lines.append(f"it was preempted {times:.0f} times and its KV computed again")
    whole = (min(start for start, _ in request.spans.values()), request.t) if request.spans else None
    for metric, says in _STALLS.items():
        if whole and (stood := _grown(store, metric, whole)) >= AT_ONCE:
            lines.append(f"steps stood still for {amount(stood, 's')} of its time: {says}")
    span = request.spans.get("prefill")
    if span and (blocks := _grown(store, "cache.evictions", span)) > 0:
        lines.append(
            f"{blocks:.0f} cached blocks were evicted while its prompt was computed (for it and those beside it)"
        )
    if whole and (tokens := _grown(store, "cache.evicted_tokens", whole)) > 0:
        lines.append(f"{tokens:.0f} cached tokens were evicted between its arrival and its end")
    if whole and (count := _grown(store, "sched.preemptions", whole)) > 0:
        lines.append(f"{count:.0f} preemptions happened between its arrival and its end")
    return lines


def _missing(request: Request, store: Store) -> list[str]:
    found = []
    if "queue" not in dict(request.parts):
        found.append("queue: this source does not tell when a request was scheduled")
    if "prefill" not in dict(request.parts):
        found.append("prefill: this source tells neither prefill time nor queue and first token of single requests")
    if request.get("request.prefix_hits") is None:
        found.append("prefix: this source does not tell cached tokens of single requests")
    if not store.keys("cache.evictions") and not store.keys("cache.evicted_tokens"):
        found.append("evictions: this source does not count them")
    return found


def _overlap(one: tuple[float, float], other: tuple[float, float]) -> float:
    return max(0.0, min(one[1], other[1]) - max(one[0], other[0]))


def _grown(store: Store, metric: str, span: tuple[float, float]) -> float:
    """How much a counter rose in a time, all its series together; a restart counts nothing."""
    total = 0.0
    for labels in store.keys(metric):
        before, after = store.latest(metric, labels, span[0]), store.latest(metric, labels, span[1])
        if before is not None and after is not None:
            total += max(after - before, 0.0)
    return total


def _mean(store: Store, metric: str, span: tuple[float, float]) -> float | None:
    values = [value for labels in store.keys(metric) for value in store.series(metric, labels, *span)[1]]
    return sum(values) / len(values) if values else None
