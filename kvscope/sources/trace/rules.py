"""The rules of ``kernels.yaml``: from the name of a kernel or an operator to the kind of work it is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import yaml

from kvscope.sources.trace.events import Trait

HOST, UNKNOWN = "host", "unknown"


class Verdict(NamedTuple):
    """A class of work; ``weak``: only what surrounds it can say it for certain."""

    work: str
    weak: bool


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of the rules."""

    work: str
    name: re.Pattern[str]
    weak: bool = False
    rank: int | None = None
    axis: int | None = None

    def matches(self, name: str, trait: Trait) -> bool:
        """Whether the rule is about this name and, where it asks for one, this shape."""
        if self.rank is not None and trait.rank != self.rank:
            return False
        if self.axis is not None and trait.axis != self.axis:
            return False
        return self.name.search(name) is not None


@dataclass(frozen=True, slots=True)
class StepRule:
    """An annotation an engine puts around one step, and what its named groups say."""

    engine: str
    name: re.Pattern[str]


@dataclass(frozen=True)
class Rules:
    """All rules; answers are remembered by name and shape."""

    metrics: Mapping[str, str]
    says: Mapping[str, str]
    kernels: Sequence[Rule]
    ops: Sequence[Rule]
    contexts: Sequence[Rule]
    steps: Sequence[StepRule]
    engines: Sequence[tuple[str, re.Pattern[str]]]
    product: re.Pattern[str]
    softmax: re.Pattern[str]
    kv_copy_bytes: int
    idle_gap_s: float
    _memo: dict[tuple[int, str, Trait], Verdict | None] = field(default_factory=dict)

    def kernel(self, name: str) -> Verdict | None:
        """Return what a GPU kernel or copy of this name is, or None."""
        return self._first(self.kernels, 0, name, Trait())

    def op(self, name: str, trait: Trait) -> Verdict | None:
        """Return what a CPU operator of this name and shape is, or None."""
        return self._first(self.ops, 1, name, trait)

    def context(self, name: str) -> str:
        """Return what the work inside a module or an annotation belongs to, or the empty string."""
        found = self._first(self.contexts, 2, name, Trait())
        return found.work if found else ""

    def engine(self, names: Sequence[str]) -> str:
        """Return the engine that has operators or annotations of these names, or the empty string."""
        for engine, pattern in self.engines:
            if any(pattern.search(name) for name in names):
                return engine
        return ""

    def _first(self, rules: Sequence[Rule], kind: int, name: str, trait: Trait) -> Verdict | None:
        key = (kind, name, trait)
        if key not in self._memo:
            found = next((rule for rule in rules if rule.matches(name, trait)), None)
            self._memo[key] = Verdict(found.work, found.weak) if found else None
        return self._memo[key]


@cache
def load() -> Rules:
    """Return the shipped rules."""
    text = (files("kvscope.sources.trace") / "kernels.yaml").read_text(encoding="utf-8")
    return parse(yaml.safe_load(text))


def parse(found: Mapping[str, Any]) -> Rules:
    """Check and compile rules; KeyError and ValueError are our own mistakes and say where."""
    classes = found["classes"]
    limits = found["thresholds"]
    return Rules(
        metrics={work: line["metric"] for work, line in classes.items()},
        says={work: line["says"] for work, line in classes.items()},
        kernels=[_rule(line, classes) for line in found["kernels"]],
        ops=[_rule(line, classes) for line in found["ops"]],
        contexts=[_rule(line, classes) for line in found["contexts"]],
        steps=[StepRule(line["engine"], re.compile(line["name"])) for line in found["steps"]],
        engines=[(line["engine"], re.compile(line["name"])) for line in found["engines"]],
        product=re.compile(found["eager_attention"]["product"]),
        softmax=re.compile(found["eager_attention"]["softmax"]),
        kv_copy_bytes=int(limits["kv_copy_bytes"]),
        idle_gap_s=float(limits["idle_gap_s"]),
    )


def _rule(line: Mapping[str, Any], classes: Mapping[str, Any]) -> Rule:
    unknown = set(line) - {"class", "name", "weak", "rank", "dim"}
    if unknown or line["class"] not in classes:
        raise ValueError(f"rule {line}: {f'unknown key {min(unknown)}' if unknown else 'no such class'}")
    name = re.compile(line["name"], re.IGNORECASE)
    return Rule(line["class"], name, bool(line.get("weak")), line.get("rank"), line.get("dim"))
