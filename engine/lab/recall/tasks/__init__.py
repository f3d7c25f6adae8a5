"""What a compressed cache is asked to remember: one task a file, found by its name.

A module has `make(rng, context, facts) -> Episode`, `MOST_FACTS` that it can tell apart, and its docstring. Every
task writes into the same document format (`engine.lab.recall.task`) and needs the standard library only.
"""

from __future__ import annotations

import random

from engine.discovery import load, module_names
from engine.lab.recall.task import DENSITY, FACT_TOKENS
from engine.lab.recall.tasks._base import Dialogue, Episode, Question

__all__ = ["Dialogue", "Episode", "Question", "describe", "make", "most_facts", "names"]


def names() -> tuple[str, ...]:
    """Every task's name."""
    return module_names(__path__)


def describe(name: str) -> str:
    """What the task asks, in one sentence."""
    return (load(__name__, name).__doc__ or "").split("\n")[0]


def most_facts(name: str, context: int) -> int:
    """Facts that a document of `context` tokens can hold: one per three tokens, as far as keys reach."""
    limit: int = load(__name__, name).MOST_FACTS
    return min(limit, (context - 1) // FACT_TOKENS)


def make(name: str, seed: int, context: int, density: float = DENSITY, dialogues: int = 4) -> Episode:
    """A document of exactly `context` tokens with `density` facts a token, and `dialogues` conversations over it.

    A density of 1/3 leaves no filler. KeyError for an unknown name; ValueError when the facts are too many for the
    context or for the task's keys, or too few for two turns.
    """
    if name not in names():
        raise KeyError(name)
    facts, most = round(context * density), most_facts(name, context)
    if density <= 1 / FACT_TOKENS:  # rounding and the first token must not make a full document too full
        facts = min(facts, (context - 1) // FACT_TOKENS)
    if facts > most:
        raise ValueError(
            f"{context} tokens at {density:.4g} facts per token make {facts} facts; {name} tells {most} apart: "
            f"change the length or the density"
        )
    rng = random.Random(f"{name} {seed} {context} {density}")
    episode: Episode = load(__name__, name).make(rng, context, facts, dialogues)
    return episode
