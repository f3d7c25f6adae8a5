"""A scheduler of the usual kind, simulated: what its page says once a second, and what really held requests back.

Continuous batching with chunked prefill as vLLM does it: those that run get their tokens first, then waiting requests
are taken in while fewer than ``cap`` run, the step's ``budget`` is not spent, and the pool has room for the whole
prompt. A request that cannot grow preempts the newest. Gauges are those of the last step's end; a prompt is counted
when its last chunk is done.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from dataclasses import dataclass, field

from probes.sample import Sample


@dataclass(frozen=True)
class Scenario:
    """``clients`` in a closed loop with ``think_s`` between requests; lengths are drawn between the two numbers."""

    clients: int
    prompt: tuple[int, int] = (60, 120)
    answer: tuple[int, int] = (80, 120)
    think_s: float = 0.0
    cap: int = 256
    pool: int = 1_000_000
    budget: int = 2048
    most_queued: int = 0
    step_s: float = 0.01
    prompt_token_s: float = 0.00005
    says_cap: bool = False


@dataclass
class Request:
    prompt: int
    answer: int
    arrived: float
    done: int = 0
    made: int = 0
    scheduled: float | None = None
    first: float | None = None

    @property
    def held(self) -> int:
        return self.done + self.made


@dataclass
class Run:
    """``samples`` as a page would give them; ``truth``: seconds of the run by what held requests back."""

    samples: list[Sample] = field(default_factory=list)
    truth: Counter[str] = field(default_factory=Counter)

    def largest(self) -> str:
        return self.truth.most_common(1)[0][0]


class _Engine:
    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.s, self.random = scenario, random.Random(seed)
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.counts: Counter[str] = Counter()
        self.ready = [(self.random.uniform(0, scenario.think_s or 0.2), client) for client in range(scenario.clients)]
        self.gauges = {"sched.running": 0.0, "sched.waiting": 0.0, "kv.usage_ratio": 0.0}

    def arrive(self, now: float) -> None:
        due = [one for one in self.ready if one[0] <= now]
        self.ready = [one for one in self.ready if one[0] > now]
        for at, client in due:
            if self.s.most_queued and len(self.waiting) >= self.s.most_queued:
                self.counts["sched.rejections"] += 1
                self.ready.append((now + max(0.1, self.s.think_s), client))
            else:
                self.waiting.append(
                    Request(self.random.randint(*self.s.prompt), self.random.randint(*self.s.answer), at)
                )

    def used(self) -> int:
        return sum(request.prompt + request.made for request in self.running)

    def step(self, now: float) -> tuple[float, str]:
        """Return how long a step took and why it left somebody waiting (or ``demand``)."""
        budget, chunks = self.s.budget, []
        for request in list(self.running):
            if request not in self.running:
                continue
            if request.done < request.prompt:
                chunk = min(budget, request.prompt - request.done)
            else:
                while self.used() + 1 > self.s.pool and len(self.running) > 1:
                    self.preempt()
                if request not in self.running:
                    continue
                chunk = min(budget, 1)
            budget -= chunk
            chunks.append((request, chunk))
        why = "demand"
        while self.waiting:
            if len(self.running) >= self.s.cap:
                why = "cap"
            elif budget <= 0:
                why = "token_budget"
            elif self.used() + self.waiting[0].prompt + self.waiting[0].made > self.s.pool:
                why = "pool"
            if why != "demand":
                break
            request = self.waiting.popleft()
            if request.scheduled is None:
                request.scheduled = now
            self.running.append(request)
            chunk = min(budget, request.prompt - request.done)
            budget -= chunk
            chunks.append((request, chunk))
        chunks = [(request, chunk) for request, chunk in chunks if request in self.running]
        prompts = sum(chunk for request, chunk in chunks if request.done < request.prompt)
        took = self.s.step_s + prompts * self.s.prompt_token_s
        self.settle(chunks, now + took, took)
        return took, why

    def preempt(self) -> None:
        victim = self.running.pop()
        victim.done = 0
        victim.prompt, victim.answer, victim.made = victim.prompt + victim.made, victim.answer - victim.made, 0
        self.waiting.appendleft(victim)
        self.counts["sched.preemptions"] += 1

    def settle(self, chunks: list[tuple[Request, int]], now: float, took: float) -> None:
        counts = self.counts
        counts["batch.steps"] += 1
        counts["batch.tokens_per_step.sum"] += sum(chunk for _, chunk in chunks)
        for request, chunk in chunks:
            if request.done < request.prompt:
                request.done += chunk
                if request.done < request.prompt:
                    continue
                counts["tokens.prefilled"] += request.prompt
            else:
                counts["latency.itl.sum"] += took
                counts["latency.itl.count"] += 1
            request.made += 1
            counts["tokens.generated"] += 1
            if request.first is None:
                request.first = now
                counts["latency.ttft.count"] += 1
                counts["latency.ttft.sum"] += now - request.arrived
            if request.made >= request.answer:
                self.finish(request, now)
        self.gauges = {
            "sched.running": len(self.running),
            "sched.waiting": len(self.waiting),
            "kv.usage_ratio": self.used() / self.s.pool,
        }

    def finish(self, request: Request, now: float) -> None:
        assert request.scheduled is not None
        assert request.first is not None
        self.running.remove(request)
        counts = self.counts
        counts["requests.finished"] += 1
        for metric, value in (
            ("request.tokens_in", request.prompt),
            ("request.tokens_out", request.made),
            ("sched.queue_time", request.scheduled - request.arrived),
            ("latency.prefill_time", request.first - request.scheduled),
            ("latency.decode_time", now - request.first),
            ("latency.e2e", now - request.arrived),
        ):
            counts[f"{metric}.sum"] += value
            counts[f"{metric}.count"] += 1
        self.ready.append((now + self.s.think_s * self.random.uniform(0.5, 1.5), 0))


_OBSERVED = (
    *("latency.itl", "latency.ttft", "latency.prefill_time", "latency.decode_time", "latency.e2e"),
    *("request.tokens_in", "request.tokens_out", "sched.queue_time"),
)
_COUNTERS = (
    *("batch.steps", "batch.tokens_per_step.sum", "tokens.generated", "tokens.prefilled", "requests.finished"),
    *("sched.preemptions", "sched.rejections"),
    *(f"{name}.{end}" for name in _OBSERVED for end in ("sum", "count")),
)


def simulate(scenario: Scenario, seconds: float = 60.0, seed: int = 0, warm_up_s: float = 10.0) -> Run:
    """Run the engine and read its page once a second, after a warm-up."""
    engine, run, now, read = _Engine(scenario, seed), Run(), 0.0, warm_up_s
    while now < warm_up_s + seconds:
        engine.arrive(now)
        if engine.running or engine.waiting:
            took, why = engine.step(now)
        else:
            took = max(1e-4, min((at for at, _ in engine.ready), default=now + 1.0) - now)
            why = "idle"
        while read <= now + took:
            run.samples += _page(engine, read)
            read += 1.0
        if now >= warm_up_s:
            run.truth["rejected" if why != "idle" and engine.s.most_queued and _turned_away(engine) else why] += took
        now += took
    return run


def _turned_away(engine: _Engine) -> bool:
    return len(engine.waiting) >= engine.s.most_queued


def _page(engine: _Engine, now: float) -> list[Sample]:
    t = 1000.0 + now
    said = [Sample("kv.capacity_tokens", float(engine.s.pool), t, ())]
    if engine.s.says_cap:
        said.append(Sample("sched.max_running", float(engine.s.cap), t, ()))
    said += [Sample(metric, float(value), t, ()) for metric, value in engine.gauges.items()]
    return said + [Sample(metric, float(engine.counts[metric]), t, ()) for metric in _COUNTERS]
