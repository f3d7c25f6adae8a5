"""From a log's lines to samples: states as gauges, rates and increases as counters, warnings as events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kvscope.sources.logs.prefix import Line
from kvscope.sources.logs.rule import Give, Memory, Rule
from kvscope.sources.settings import Settings
from probes.border import printable
from probes.catalog import CATALOG, COUNTER, REPLICA
from probes.sample import Labels, Sample, labels_of

_MOST_SPEAKERS = 256
_TAG_LENGTH = 120
_ORDER_ONLY = ("prefix.", "tier.queries", "tier.hits", "events.", "config.", "request.")
"""What a log without any time may still count: shares. A state, a duration and a rate that the engine itself printed
need no time; what it counted without saying over how long would become a rate that nobody measured."""


class EngineLog(Protocol):
    """A module of ``kvscope.sources.logs.engines``."""

    ENGINE: str
    READ_IN: str
    """Version and repository that the formats were read in."""
    RULES: Sequence[Rule]
    BESIDE: Sequence[str]
    """Engines into whose log this one writes too."""
    LACKS: str
    """What this engine's page tells and its log does not, for a person."""


@dataclass(slots=True)
class _Speaker:
    """One engine of a log: its counters, and when each kind of line came last."""

    labels: Labels
    memory: Memory = field(default_factory=dict)
    counters: dict[tuple[str, Labels], float] = field(default_factory=dict)
    fresh: set[tuple[str, Labels]] = field(default_factory=set)
    before_s: dict[int, float] = field(default_factory=dict)
    ticked_s: float | None = None


class LogReader:
    """Reads the lines of one log in their order. Several engines in it are told apart by ``replica``."""

    def __init__(self, engines: Sequence[EngineLog], several: bool = False, timed: bool = True) -> None:
        self.engine = engines[0]
        self.settings = Settings(engines[0].ENGINE)
        self.tags: dict[str, str] = {"engine": engines[0].ENGINE}
        self.notices: list[str] = []
        self._several = several
        self._timed = timed
        self._speakers: dict[str, _Speaker] = {}
        self._last_s: float | None = None
        self._said: set[str] = set()
        self._events = sorted(
            {give.name for one in engines for rule in one.RULES for give in rule.gives if _event(give)}
        )
        self._info: Labels = ()
        self._worked = False

    @property
    def ticked(self) -> bool:
        """Whether any line told of work rather than of the start."""
        return self._worked

    @property
    def replicas(self) -> list[str]:
        """Engines told apart so far; empty where one alone writes the log."""
        return [who for who, speaker in self._speakers.items() if speaker.labels and speaker.ticked_s is not None]

    def take(self, line: Line, t: float, rule: Rule, weight: float = 1.0) -> list[Sample] | None:
        """Return the samples of a line under a rule; None when it is not of that kind.

        ``weight``: how many such lines this one stands for, where a large log is thinned.
        """
        t = t if self._last_s is None else max(t, self._last_s)
        speaker = self._speaker(line.who)
        gives = rule.of(line.message, speaker.memory)
        if gives is None:
            return None
        named = next((give.text for give in gives if give.kind == "who"), "")
        if named and self._several:
            speaker = self._speaker(f"{line.who} {named}".strip())
        samples: list[Sample] = []
        if self._last_s is None:
            self._first(speaker, t - rule.every_s)
        self._last_s = t
        for give in gives:
            self._give(give, rule, speaker, t, weight, samples)
        self._worked = self._worked or rule.stat
        if rule.says:
            self._once(rule.says)
        return self._close(samples, speaker, rule, t)

    def _give(self, give: Give, rule: Rule, speaker: _Speaker, t: float, weight: float, out: list[Sample]) -> None:
        kind, name = give.kind, give.name
        if kind == "word":
            self.settings.read(name, give.text, "log")
        elif kind == "tag":
            self.tags[name] = printable(give.text.strip().strip("'\""), _TAG_LENGTH)
        elif kind == "setting":
            self.settings.say(name, give.value, "log")
        elif not self._timed and kind == "grow" and not name.startswith(_ORDER_ONLY):
            return
        elif kind in ("gauge", "each"):
            out.append(Sample(name, give.value, t, self._labels(speaker, give.labels)))
        elif kind == "grow" and give.value >= 0:
            self._grow(speaker, (name, give.labels), give.value * weight, t, out)
        elif kind == "rate" and give.value >= 0:
            before = speaker.before_s.get(id(rule))
            span = t - before if before is not None else rule.every_s
            if before is None and rule.every_s:
                speaker.ticked_s = max(speaker.ticked_s or 0.0, t - rule.every_s)
            self._grow(speaker, (name, give.labels), give.value * max(0.0, span), t, out)

    def _grow(self, speaker: _Speaker, key: tuple[str, Labels], by: float, t: float, out: list[Sample]) -> None:
        if key not in speaker.counters:
            # What counts from nothing stood at nothing when this speaker last said anything.
            speaker.counters[key] = 0.0
            out.append(
                Sample(
                    key[0], 0.0, speaker.ticked_s if speaker.ticked_s is not None else t, self._labels(speaker, key[1])
                )
            )
        speaker.counters[key] += by
        speaker.fresh.add(key)

    def _close(self, samples: list[Sample], speaker: _Speaker, rule: Rule, t: float) -> list[Sample]:
        """Add the counters as they stand now: all of them after a stat line, else what has just grown."""
        speaker.before_s[id(rule)] = t
        if samples or speaker.fresh:
            told = speaker.counters if rule.stat else speaker.fresh
            samples += [
                Sample(name, speaker.counters[name, labels], t, self._labels(speaker, labels)) for name, labels in told
            ]
            speaker.fresh.clear()
            if rule.stat:
                speaker.ticked_s = t
        samples += [*self._derived(samples, speaker, t), *self.settings.samples(t)]
        info = labels_of(**{name: text for name, text in self.tags.items() if name in CATALOG["engine.info"].labels})
        if info != self._info or rule.stat:
            self._info = info
            samples.append(Sample("engine.info", 1.0, t, info))
        return samples

    def _derived(self, samples: Sequence[Sample], speaker: _Speaker, t: float) -> list[Sample]:
        """Tokens and bytes held, from the share of the pool in use and the pool's size as said at the start."""
        usage = next((one.value for one in samples if one.metric == "kv.usage_ratio"), None)
        known = self.settings.values()
        tokens = known.get("kv.capacity_tokens")
        if usage is None or not tokens:
            return []
        found: list[Sample] = []
        if not any(one.metric == "kv.used_tokens" for one in samples):
            found.append(Sample("kv.used_tokens", usage * tokens, t, self._labels(speaker, ())))
        pool = known.get("kv.reserved_bytes")
        alone = known.get("config.tensor_parallel", 1.0) * known.get("config.pipeline_parallel", 1.0) == 1.0
        if pool is None and alone and "pool" not in self.tags:
            pool = known.get("config.kv_memory_bytes")
            if pool:
                self.settings.say("kv.reserved_bytes", pool, "log")
        if pool:
            found.append(Sample("kv.resident_bytes", usage * pool, t, self._labels(speaker, ())))
            self.settings.say("kv.bytes_per_token_assumed", pool / tokens, "log")
        return found

    def _first(self, speaker: _Speaker, t: float) -> None:
        """Events that this engine would write count from zero: not one of them was said so far."""
        speaker.ticked_s = t
        for name in self._events:
            speaker.counters[name, ()] = 0.0

    def _speaker(self, who: str) -> _Speaker:
        found = self._speakers.get(who)
        if found is None:
            if len(self._speakers) >= _MOST_SPEAKERS:
                self._once(f"more than {_MOST_SPEAKERS} replicas in one log: the others are read as one")
                who = "others"
                if who in self._speakers:
                    return self._speakers[who]
            labels = labels_of(**{REPLICA: printable(who, _TAG_LENGTH)}) if who and self._several else ()
            found = self._speakers[who] = _Speaker(labels)
        return found

    def _labels(self, speaker: _Speaker, labels: Labels) -> Labels:
        if not speaker.labels:
            return labels
        return tuple(sorted((*labels, *speaker.labels)))

    def _once(self, notice: str) -> None:
        if notice not in self._said and len(self._said) < 100:
            self._said.add(notice)
            self.notices.append(notice)


def _event(give: Give) -> bool:
    line = CATALOG.get(give.name)
    return line is not None and line.kind == COUNTER and give.name.startswith("events.") and not give.labels


def needles(rules: Iterable[Rule]) -> dict[bytes, list[Rule]]:
    """Return literal text → the rules whose lines hold it."""
    found: dict[bytes, list[Rule]] = {}
    for rule in rules:
        found.setdefault(rule.needle.encode(), []).append(rule)
    return found
