"""Turning one engine's pages into canonical samples, page after page: names, units, restarts, oddities."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from kvscope.sources import maps
from kvscope.sources._prometheus import Parser
from kvscope.sources.identity import Processes, Seen
from kvscope.sources.mapping import Derived, EngineMap, Entry
from kvscope.sources.settings import Settings
from probes.border import LARGEST, Memo, Refused, finite, printable, weight, written
from probes.catalog import CATALOG
from probes.sample import Labels, Sample, labels_of

_HISTOGRAM_PARTS = (".bucket", ".sum", ".count")
_CORE = ("tokens.generated", "sched.running", "kv.usage_ratio", "latency.ttft")
_RESOLVED_BYTES = 24 << 20
_FEW, _MOST_TARGETS = 1024, 100_000
"""What is remembered of series is forgotten when it is of more than these, and of twice as many as the page has: most
of it is of label sets that ended. What the next page has is then resolved anew, all of it: two that remember the same
series differently would count it twice."""
_MOST_SETS, _MOST_BUCKETS = 1000, 8000
"""Label sets of one metric that are told apart; further ones are added up as ``other``. A page of 64 layers, or of 200
adapters with five reasons to end each, has as many."""
OTHER = "other"
_MODEL_WITHIN, _MOST_MODELS = 1 << 16, 100


@dataclass(frozen=True, slots=True, eq=False)
class _Target:
    """One canonical series that raw series fold into; compared by identity."""

    entry: Entry
    metric: str
    labels: Labels
    grows: bool
    rank: int
    """Which of the page's engines says it: 0 is the engine itself."""


Targets = tuple[_Target, ...]


@dataclass(slots=True)
class PageResult:
    """What a page brought. ``seen`` says who wrote it, compared with the page before, and ``process`` which of several
    that answer in turns (None while one does); ``counters`` are what only grows."""

    samples: list[Sample] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    seen: Seen = Seen.SAME
    process: int | None = None
    counters: dict[tuple[str, Labels], float] = field(default_factory=dict)

    @property
    def restarted(self) -> bool:
        """Whether the engine started anew since the page before."""
        return self.seen is Seen.RESTARTED


class PageReader:
    """Reads the pages of one target with its engine's map; remembers what was last seen to notice restarts.

    ``engine`` wrote the page; ``beside`` are others whose names stand on it too (a KV store, a router). A metric is
    taken from the first of them that reports it, never from two.
    """

    def __init__(self, engine: EngineMap, *beside: EngineMap) -> None:
        self.engine = engine
        self.flags: dict[str, str] = {}
        self.settings = Settings(engine.ENGINE)
        self.tags: dict[str, str] = {"engine": engine.ENGINE}
        self._engines = (engine, *beside)
        if beside:
            self.tags["beside"] = ", ".join(other.ENGINE for other in beside)
        self._entries, self._rank = _by_sample_name(self._engines)
        self._telling = _all_telling(self._engines)
        self._resolved: Memo[tuple[str, Labels], Targets | None] = Memo(_RESOLVED_BYTES)
        self._targets: dict[tuple[int, str, Labels, Labels], _Target] = {}
        self._sets: dict[str, dict[Labels, None]] = {}
        self._folded: set[str] = set()
        self._infos: dict[str, dict[Labels, None]] = {}
        self._parser: Parser[Targets] = Parser(self.resolve)
        self._processes: Processes[tuple[str, Labels]] = Processes()
        self._models: dict[str, None] = {}
        self._said: set[str] = set()
        self._left_out: set[str] = set()

    def read(self, text: str, t: float, side: Mapping[str, float] | None = None) -> PageResult:
        """Return the samples of a page scraped at ``t`` (seconds since the epoch), and of ``side`` read with it."""
        page = self._parser.parse(text)
        self._look_at_models(text)
        result = self.read_rows(page.rows, t, side)
        if self._parser.remembered > max(_FEW, 2 * text.count("\n")):
            self._forget()
        if page.bad_lines:
            self._say_once(
                f"{page.bad_lines} lines of the page are no samples and were skipped, e.g. {page.first_bad!r}", result
            )
        return result

    def read_rows(
        self, rows: Iterable[tuple[Targets, float]], t: float, side: Mapping[str, float] | None = None
    ) -> PageResult:
        """Return the samples of raw series that ``resolve`` knew, all of one time."""
        result = PageResult()
        values, grows = self._fold(rows, result)
        if len(self._targets) > min(_MOST_TARGETS, max(_FEW, 2 * len(values))):
            self._forget()
        for metric, value in (side or {}).items():
            values.setdefault((metric, ()), value)
        derived = self._derive(values)
        for notice in derived.notices:
            self._say_once(notice, result)
        # A sum over label sets that come and go falls as they go: it says nothing of who wrote the page.
        counters = {key: value for key, value in values.items() if key in grows and key[0] not in self._folded}
        self._watch(counters, values.get(("process.start_time", ())), t, result)
        result.samples = [Sample(metric, value, t, labels) for (metric, labels), value in values.items()]
        result.samples += [Sample(metric, value, t) for metric, value in derived.values.items()]
        result.samples += self._settings(t, {*(metric for metric, _ in values), *derived.values})
        result.samples.append(Sample("engine.info", 1.0, t, self._identity()))
        for metric in sorted(self._folded):
            self._say_once(f"{metric}: more label sets than are told apart; further ones are added up", result)
        return result

    def missing(self, samples: Iterable[Sample]) -> list[str]:
        """Say which of the most needed metrics the page has under none of their names."""
        # What is on the page but has no usable value was told by itself.
        have = {sample.metric.removesuffix(".count") for sample in samples} | self._left_out
        found = []
        for metric in _CORE:
            known = dict.fromkeys(entry.name for entry in self.engine.MAP if entry.metric == metric)
            if known and metric not in have:
                found.append(f"{metric}: not on the page under any known name ({', '.join(known)})")
        return found

    def resolve(self, name: str, labels: Labels) -> Targets | None:
        """Return the canonical series a raw series folds into, or None when it means nothing here."""
        found = self._entries.get(name)
        if found is None:
            name = maps.canonical(name)
            found = self._entries.get(name)
        if found is None:
            return None
        telling = self._telling[name]
        key = (name, labels if telling is None else tuple([pair for pair in labels if pair[0] in telling]))
        try:
            return self._resolved.known[key]
        except KeyError:
            return self._resolved.put(key, self._resolve(found, labels), len(name) + weight(key[1]))

    def _resolve(self, found: Sequence[tuple[Entry, str]], labels: Labels) -> Targets | None:
        pairs = dict(labels)
        for label, tag in self.engine.IDENTITY.items():
            if label in pairs:
                self.tags.setdefault(tag, printable(pairs[label], 128))
        targets = tuple(
            self._target(entry, part, pairs, labels)
            for entry, part in found
            if all(pairs.get(label) == value for label, value in entry.where)
        )
        return targets or None

    def _identity(self) -> Labels:
        known = CATALOG["engine.info"].labels
        return labels_of(**{name: value for name, value in self.tags.items() if name in known})

    def _target(self, entry: Entry, part: str, pairs: Mapping[str, str], labels: Labels) -> _Target:
        if entry.kind == "info":
            return self._intern(entry, entry.name, labels, grows=False)
        kept = {label: pairs[label] for label in entry.keep if label in pairs} | dict(entry.labels)
        kept |= {ours: pairs[theirs] for theirs, ours in entry.rename if theirs in pairs}
        if part == ".bucket":
            kept["le"] = _bound(pairs.get("le", ""), entry.scale)
        group = tuple(pair for pair in labels if pair[0] not in entry.copies) if entry.copies else ()
        metric = entry.metric + part
        bounded = self._bounded(metric, labels_of(**kept), part)
        return self._intern(entry, metric, bounded, group, grows=bool(part) or entry.kind == "counter")

    def _bounded(self, metric: str, labels: Labels, part: str) -> Labels:
        """Return the labels under which a series is kept: its own while the metric has few sets, then ``other``."""
        if not labels:
            return labels
        sets = self._sets.setdefault(metric, {})
        if labels in sets:
            return labels
        if len(sets) < (_MOST_BUCKETS if part == ".bucket" else _MOST_SETS):
            sets[labels] = None
            return labels
        self._folded.add(metric)
        if part == ".bucket":
            raise Refused(f"more than {_MOST_BUCKETS} buckets of one histogram")
        return tuple([(name, OTHER) for name, _ in labels])

    def _intern(self, entry: Entry, metric: str, labels: Labels, group: Labels = (), *, grows: bool) -> _Target:
        return self._targets.setdefault(
            (id(entry), metric, labels, group), _Target(entry, metric, labels, grows, self._rank[entry.name])
        )

    def _forget(self) -> None:
        """Forget what series meant. Which label sets a metric had stays: a page that invents them goes on adding up."""
        self._parser.forget()
        self._resolved.clear()
        self._targets.clear()

    def _fold(
        self, rows: Iterable[tuple[Targets, float]], result: PageResult
    ) -> tuple[dict[tuple[str, Labels], float], set[tuple[str, Labels]]]:
        """Add the raw series up into canonical ones; return the values and which of them only grow."""
        folded: dict[_Target, list[float]] = {}
        for targets, value in rows:
            for target in targets:
                if target in folded:
                    folded[target].append(value)
                else:
                    folded[target] = [value]
        present = {target.entry.name for target in folded}
        first = self._first_to_say(folded, present)
        values: dict[tuple[str, Labels], float] = {}
        grows: set[tuple[str, Labels]] = set()
        self._infos = {}
        for target, raw in folded.items():
            entry = target.entry
            if entry.kind == "info":
                self._infos.setdefault(entry.name, {})[target.labels] = None
                continue
            if entry.unless in present or first[entry.metric] != target.rank:
                continue
            value = _combined(target, raw)
            if not finite(value) or (target.grows and value < 0 and not target.metric.endswith(".sum")):
                self._left_out.add(entry.metric)
                self._say_once(f"{entry.name} is {value:g}: left out", result)
                continue
            key = (target.metric, target.labels)
            # Two huge values can add up to more than anything that is measured.
            values[key] = min(values.get(key, 0.0) + value, LARGEST)
            if target.grows:
                grows.add(key)
        return values, grows

    def _first_to_say(self, folded: Iterable[_Target], present: Collection[str]) -> dict[str, int]:
        """Return metric → which of the page's engines it is taken from."""
        first: dict[str, int] = {}
        for target in folded:
            if target.entry.unless not in present:
                metric = target.entry.metric
                first[metric] = min(first.get(metric, target.rank), target.rank)
        return first

    def _derive(self, values: Mapping[tuple[str, Labels], float]) -> Derived:
        """Return what every engine on the page says in labels; the first to say something is believed."""
        infos = {name: [dict(labels) for labels in found] for name, found in self._infos.items()}
        plain = {metric: value for (metric, labels), value in values.items() if not labels}
        found: dict[str, float] = {}
        notices: list[str] = []
        for engine in self._engines:
            derived = engine.derive(infos, {**plain, **found}, self.flags)
            for metric, value in derived.values.items():
                if metric not in plain:
                    found.setdefault(metric, value)
            self.tags.update({tag: text for tag, text in derived.tags.items() if engine is self.engine})
            notices += derived.notices
        return Derived(found, {}, tuple(notices))

    def _settings(self, t: float, said: Collection[str]) -> list[Sample]:
        """Return the settings that came up anew: labels of info families are an engine's account of its arguments."""
        for families in self._infos.values():
            for labels in families:
                for name, value in labels:
                    self.settings.read(name, value, "page")
        return [sample for sample in self.settings.samples(t) if sample.metric not in said]

    def _watch(
        self, counters: dict[tuple[str, Labels], float], start: float | None, t: float, result: PageResult
    ) -> None:
        """Find out whether the process of the page before wrote this one."""
        found = self._processes.see(counters, start, next(iter(self._models), ""), t)
        result.seen, result.counters = found.seen, counters
        result.process = found.number if self._processes.several else None
        if found.seen is Seen.RESTARTED:
            example = f", e.g. {found.fallen[0][0]}" if found.fallen else ""
            result.notices.append(f"the engine restarted: {found.why}{example}")
        elif found.seen is Seen.EXCHANGED:
            result.notices.append(f"another engine answers here now: {found.why}")
        elif found.seen is Seen.SEVERAL:
            result.notices.append("several engines answer behind this address in turns: each is followed by itself")

    def _look_at_models(self, text: str) -> None:
        """Note which model's engine wrote a page: the first that it names, unless that is one of those named before."""
        label = next((label for label, tag in self.engine.IDENTITY.items() if tag == "model"), None)
        found = re.search(rf'[{{,]{label}="((?:[^"\\]|\\.){{1,256}})"', text[:_MODEL_WITHIN]) if label else None
        if found is None:
            return
        name = printable(found[1], 128)
        if name in self._models:
            return
        named = dict.fromkeys(printable(one, 128) for one in re.findall(rf'[{{,]{label}="([^"\\]{{1,256}})"', text))
        # Adapters beside a model come and go: only when none of those named before is left is it another one's page.
        if not self._models or not named.keys() & self._models.keys():
            if self._models:
                self.tags["model"] = name
            self._models = dict(list(named.items())[:_MOST_MODELS])

    def _say_once(self, notice: str, result: PageResult) -> None:
        if notice not in self._said and len(self._said) < 100:
            self._said.add(notice)
            result.notices.append(notice)


@cache
def _by_sample_name(engines: tuple[EngineMap, ...]) -> tuple[dict[str, list[tuple[Entry, str]]], dict[str, int]]:
    """Return sample name → the entries that read it, each with the histogram part it supplies; and whose each is."""
    found: dict[str, list[tuple[Entry, str]]] = {}
    rank: dict[str, int] = {}
    for index, engine in enumerate(engines):
        for entry in engine.MAP:
            if rank.setdefault(entry.name, index) != index:
                continue
            parts = _HISTOGRAM_PARTS if entry.kind == "histogram" else ("",)
            for part in parts:
                found.setdefault(entry.name + part.replace(".", "_"), []).append((entry, part))
    return found, rank


@cache
def _all_telling(engines: tuple[EngineMap, ...]) -> dict[str, frozenset[str] | None]:
    return {name: _telling(engines[0], found) for name, found in _by_sample_name(engines)[0].items()}


def _telling(engine: EngineMap, found: Sequence[tuple[Entry, str]]) -> frozenset[str] | None:
    """Return the labels that decide what a series of one name means; None when all of them do."""
    if any(entry.copies or entry.kind == "info" for entry, _ in found):
        return None
    labels = {
        label
        for entry, _ in found
        for label in (*entry.keep, *(name for name, _ in entry.where), *(theirs for theirs, _ in entry.rename))
    }
    return frozenset({*labels, *engine.IDENTITY, "le"})


def _combined(target: _Target, raw: list[float]) -> float:
    entry = target.entry
    # A histogram's buckets and count are numbers of values, whatever the values' unit.
    scale = 1.0 if target.metric.endswith((".bucket", ".count")) else entry.scale
    if entry.combine == "max" or entry.copies:
        return max(raw) * scale
    total = sum(raw) * scale
    return total / len(raw) if entry.combine == "mean" else total


def _bound(text: str, scale: float) -> str:
    """Return a bucket's bound in the catalogue's unit and in one spelling (``1`` and ``1.0`` are one bound)."""
    if text.lower() in ("+inf", "inf"):
        return "+Inf"
    return repr(written(text, "a bucket's bound", -LARGEST, LARGEST) * scale)
