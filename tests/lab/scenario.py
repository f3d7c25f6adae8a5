"""Scenarios for real engines, drawn by seed: settings and load from families, and every lift that could apply.

A family sets a scene in which one limit is likely; what is true of it nobody says here. The lifts tell: the same load
with one limit lifted at a time (``truth.py``). Every number is drawn from a range that holds harmless values, too.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

Settings = dict[str, int | float | str]


@dataclass(frozen=True)
class Load:
    """What clients do: closed loops (``clients`` with ``think_s`` between requests) or, with ``rate_per_s``, open."""

    clients: int = 4
    rate_per_s: float = 0.0
    think_s: float = 0.0
    prompt: tuple[int, int] = (50, 100)
    output: tuple[int, int] = (50, 100)
    shared: int = 0
    """Tokens that every prompt begins with."""
    conversations: int = 0
    """Prefixes of ``shared`` tokens that are asked in turn; 0: one for all."""
    long_clients: int = 0
    """Clients beside the others that send prompts of ``long_prompt`` tokens and want few tokens back."""
    long_prompt: int = 0


@dataclass(frozen=True)
class Case:
    """One drawn scenario and its lifts: name → (settings, load) in which that limit alone is lifted."""

    engine: str
    seed: int
    family: str
    settings: Settings
    load: Load
    lifts: dict[str, tuple[Settings, Load]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The folder of the case."""
        return f"{self.engine}-{self.seed:06d}-{self.family}"

    def as_json(self) -> dict[str, Any]:
        """Return what is kept beside the runs."""
        lifts = {name: {"settings": one, "load": asdict(load)} for name, (one, load) in self.lifts.items()}
        return {**asdict(self), "load": asdict(self.load), "lifts": lifts}


@dataclass(frozen=True)
class Speed:
    """How fast an engine is on one core here, so that families ask for loads that it can about carry."""

    prefill_per_s: float
    decode_per_s: float


SPEEDS = {"llamacpp": Speed(1000, 200), "vllm": Speed(2500, 80), "dynamo": Speed(8000, 160)}
CAP, POOL, BUDGET, KV_TYPE, REUSE = "cap", "pool_tokens", "budget", "kv_type", "reuse"
"""Settings in words of their own; ``engines.py`` says how each engine takes them."""


def draw(engine: str, seed: int) -> Case:
    """Draw one case; equal seeds give equal cases."""
    rng = random.Random(f"{engine}:{seed}")
    names = [name for name, (engines, _) in FAMILIES.items() if engine in engines]
    family = names[seed % len(names)]
    settings, load = FAMILIES[family][1](rng, SPEEDS[engine], engine)
    settings = {**_roomy(engine), **settings}
    return Case(engine, seed, family, settings, load, _lifts(engine, settings, load))


def _roomy(engine: str) -> Settings:
    cap = {"llamacpp": 8, "vllm": 64, "dynamo": 64}[engine]
    pool = {"llamacpp": 32768, "vllm": 65536, "dynamo": 65536}[engine]
    return {CAP: cap, POOL: pool, BUDGET: 2048, KV_TYPE: "f16", REUSE: 1}


def _between(rng: random.Random, low: float, high: float) -> int:
    """Draw log-uniformly."""
    return round(math.exp(rng.uniform(math.log(low), math.log(high))))


def _span(rng: random.Random, low: float, high: float) -> tuple[int, int]:
    middle, spread = _between(rng, low, high), rng.choice((1.0, 1.3, 2.0))
    return max(1, round(middle / spread)), max(2, round(middle * spread))


def _capped(rng: random.Random, speed: Speed, engine: str) -> tuple[Settings, Load]:
    cap = rng.choice((1, 2, 3, 4, 6))
    return {CAP: cap}, Load(
        max(1, round(cap * rng.choice((0.5, 1, 2, 4, 6)))), 0, 0, _span(rng, 20, 150), _span(rng, 30, 150)
    )


def _growing(rng: random.Random, speed: Speed, engine: str) -> tuple[Settings, Load]:
    """Short prompts and long answers in a small pool."""
    clients = rng.choice((4, 8, 12))
    output = _span(rng, 100, 300)
    needed = clients * (60 + sum(output) / 2)
    pool = max(2 * (120 + output[1]), round(needed * rng.choice((0.25, 0.4, 0.6, 1.5))))
    return {POOL: pool, CAP: 16}, Load(clients, 0, 0, (40, 120), output)


def _bulky(rng: random.Random, speed: Speed, engine: str) -> tuple[Settings, Load]:
    """Long prompts and short answers in a small pool."""
    clients, prompt = rng.choice((4, 6, 10)), _span(rng, 0.2 * speed.prefill_per_s, 0.6 * speed.prefill_per_s)
    pool = max(round(1.3 * prompt[1]) + 64, round(clients * sum(prompt) / 2 * rng.choice((0.25, 0.4, 0.7, 1.6))))
    return {POOL: pool, CAP: 16}, Load(clients, 0, 0, prompt, _span(rng, 8, 60))


def _turns(rng: random.Random, speed: Speed, engine: str) -> tuple[Settings, Load]:
    """Conversations asked in turn."""
    conversations, shared = (
        rng.choice((3, 6, 12, 20)),
        _between(rng, 0.2 * speed.prefill_per_s, 0.7 * speed.prefill_per_s),
    )
    clients = rng.choice((1, 2, 3))
    share = rng.choice((0.3, 0.6, 1.5, 3.0))
    if engine == "llamacpp":
        # A slot keeps one conversation; the pool is their sum.
        slots = max(clients, round(conversations * share))
        settings: Settings = {CAP: min(slots, 24), POOL: min(slots, 24) * (shared + 512), REUSE: 1}
    else:
        settings = {POOL: max(clients * (shared + 300), round(conversations * (shared + 100) * share))}
    return settings, Load(clients, 0, 0, (10, 40), _span(rng, 8, 40), shared, conversations)


def _beside(rng: random.Random, speed: Speed, engine: str) -> tuple[Settings, Load]:
    """Long prompts beside others that decode."""
    load = Load(rng.choice((2, 4, 6)), 0, 0, (20, 60), _span(rng, 80, 200))
    long = _between(rng, 0.3 * speed.prefill_per_s, 2.5 * speed.prefill_per_s)
    return {BUDGET: rng.choice((512, 2048, 4096))}, replace(load, long_clients=rng.choice((1, 1, 2)), long_prompt=long)


def _prompts(rng: random.Random, speed: Speed, engine: str) -> tuple[Settings, Load]:
    """Prompts of their own, few tokens back."""
    prompt = _span(rng, 0.3 * speed.prefill_per_s, 1.5 * speed.prefill_per_s)
    return {}, Load(rng.choice((1, 2, 4)), 0, 0, prompt, _span(rng, 8, 40))


def _thinking(rng: random.Random, speed: Speed, engine: str) -> tuple[Settings, Load]:
    return {}, Load(rng.choice((1, 2, 3)), 0, rng.choice((0.2, 0.8, 2.0, 4.0)), _span(rng, 20, 150), _span(rng, 20, 80))


def _steady(rng: random.Random, speed: Speed, engine: str) -> tuple[Settings, Load]:
    output = _span(rng, 20, 80)
    rate = speed.decode_per_s / sum(output) * 2 * rng.choice((0.15, 0.3, 0.5, 0.8))
    return {}, Load(0, round(rate, 3), 0, _span(rng, 20, 150), output)


def _decoding(rng: random.Random, speed: Speed, engine: str) -> tuple[Settings, Load]:
    return {}, Load(rng.choice((1, 2, 4, 8)), 0, 0, (16, 32), _span(rng, 150, 400))


def _sharing(rng: random.Random, speed: Speed, engine: str) -> tuple[Settings, Load]:
    """One long prompt that all begin with; sometimes its reuse is switched off."""
    shared = _between(rng, 0.3 * speed.prefill_per_s, speed.prefill_per_s)
    return {REUSE: rng.choice((0, 1))}, Load(rng.choice((2, 4)), 0, 0, (10, 40), _span(rng, 20, 80), shared)


def _budgeted(rng: random.Random, speed: Speed, engine: str) -> tuple[Settings, Load]:
    prompt = _span(rng, 0.2 * speed.prefill_per_s, 0.6 * speed.prefill_per_s)
    return {BUDGET: rng.choice((64, 128, 256, 2048))}, Load(rng.choice((4, 8)), 0, 0, prompt, _span(rng, 20, 60))


def _typed(rng: random.Random, speed: Speed, engine: str) -> tuple[Settings, Load]:
    """KV in fewer bits, contexts long enough to be read."""
    load = Load(rng.choice((1, 3, 4)), 0, 0, (40, 80), _span(rng, 100, 250), _between(rng, 400, 1800))
    return {KV_TYPE: rng.choice(("q8_0", "q4_0"))}, load


FAMILIES: dict[str, tuple[tuple[str, ...], Callable[[random.Random, Speed, str], tuple[Settings, Load]]]] = {
    "capped": (("llamacpp", "vllm", "dynamo"), _capped),
    "growing": (("llamacpp", "vllm", "dynamo"), _growing),
    "turns": (("llamacpp", "vllm", "dynamo"), _turns),
    "beside": (("llamacpp", "vllm", "dynamo"), _beside),
    "steady": (("llamacpp", "vllm", "dynamo"), _steady),
    "prompts": (("llamacpp", "vllm", "dynamo"), _prompts),
    "thinking": (("llamacpp", "vllm", "dynamo"), _thinking),
    "bulky": (("vllm", "dynamo"), _bulky),
    "decoding": (("llamacpp", "vllm", "dynamo"), _decoding),
    "sharing": (("llamacpp", "vllm", "dynamo"), _sharing),
    "budgeted": (("vllm", "dynamo"), _budgeted),
    "typed": (("llamacpp",), _typed),
}


def _lifts(engine: str, settings: Settings, load: Load) -> dict[str, tuple[Settings, Load]]:
    """Return each limit lifted alone: settings first, then what the clients ask."""
    cap, pool = int(settings[CAP]), int(settings[POOL])
    wider: Settings = {**settings, CAP: 4 * cap}
    if engine == "llamacpp" and load.conversations == 0:
        # Each slot keeps its own share of the pool: room grows with the slots.
        wider[POOL] = pool * 4 if not _unified(settings) else pool
    found = {"cap": (wider, load), "pool": ({**settings, POOL: 4 * pool}, load)}
    if not load.rate_per_s and load.clients + load.long_clients <= cap:
        # As many as there ever are may run: the pool alone is the control.
        del found["cap"]
    if engine == "llamacpp" and load.conversations:
        slots = max(4 * cap, load.conversations + 2)
        found = {"pool": ({**settings, CAP: slots, POOL: pool // cap * slots}, load)}
    if engine != "llamacpp" and int(settings[BUDGET]) < 2048:
        found["budget"] = ({**settings, BUDGET: 2048}, load)
    if not settings[REUSE]:
        found["reuse"] = ({**settings, REUSE: 1}, load)
    if settings[KV_TYPE] != "f16":
        found["kv_type"] = ({**settings, KV_TYPE: "f16"}, load)
    if load.think_s:
        found["think"] = (settings, replace(load, think_s=0.0))
    if load.long_clients:
        found["long"] = (settings, replace(load, long_prompt=load.prompt[1]))
    if sum(load.prompt) >= 150:
        found["prompt"] = (settings, replace(load, prompt=(16, 16), shared=sum(load.prompt) // 2 - 16, conversations=0))
    elif load.conversations and load.shared >= 150:
        found["prompt"] = (settings, replace(load, conversations=0))
    return found


def _unified(settings: Settings) -> bool:
    """Whether all slots of llama.cpp share one pool: where less is given than each slot's share would need."""
    return int(settings[POOL]) // int(settings[CAP]) < 512
