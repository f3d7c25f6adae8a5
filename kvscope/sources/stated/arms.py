"""The runs that figures tell of: which two are compared, what the name of one says of it, which figures are its own."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache

from kvscope.sources.stated.figure import COMMON, Figure, Stated, aliases, bits_of, said_by
from probes.sample import Labels, labels_of


def arms(figures: Sequence[Figure], mended: bool = False) -> tuple[str, str]:
    """Return baseline and current arm: as named, or else the better run first, since reports tell of what got worse.

    Of all pairs that whose names say which was good and bad; whose runs were not mended; that had the same load (the
    numbers in their names); that differ in the bits of KV; that are otherwise most alike in name; that are most apart
    in outcome. A run with a feature (fewer bits, drafts, a tier) is held against the one without, whichever was better.
    Where one run sends again what another sent, the first is the baseline. ``mended``: ``before`` and ``after`` may be
    told of a fault and its cure; then what was clearly worse is what is asked about.
    """
    names = list(dict.fromkeys(one.arm for one in figures if one.arm not in COMMON))
    for pair in (("baseline", "current"), ("before", "after"), ("A", "B"), ("a", "b")):
        if set(pair) <= set(names):
            cured = mended and "before" in pair and _worsened(figures, *pair) <= _CURED
            return (pair[1], pair[0]) if cured else pair
    if repeat := _repeat(names):
        return repeat
    best: tuple[tuple[float, ...], str, str] | None = None
    for good in names[:50]:
        for bad in names[:50]:
            score = _comparison(figures, good, bad)
            if score is not None and (best is None or score > best[0]):
                best = score, good, bad
    if best:
        return best[1], best[2]
    return "", max(names, key=lambda name: sum(one.arm == name for one in figures)) if names else ""


_CURED = 0.95
"""What is told to be after is better by a twentieth: it was the cure."""


def _comparison(figures: Sequence[Figure], good: str, bad: str) -> tuple[float, ...] | None:
    """Return how well two runs are compared in this order; None where they are not."""
    if good == bad:
        return None
    worse, added = _worsened(figures, good, bad), _added(good, bad)
    named = _likeness(words_of(good), words_of(bad))
    if _added(bad, good) or (worse <= 1.0 and not (added and worse != 1.0) and named[0] < 2):
        return None
    return *named, max(worse, 1 / worse)


def _added(plain: str, other: str) -> bool:
    """Whether the second run's name says that something is on which the first did without, or fewer bits of KV."""
    table = aliases()["arm_settings"]
    bits = [min(_bits_of(words_of(arm)), default=_OWN_BITS) for arm in (plain, other)]
    return bits[1] < bits[0] or any(
        _told(other, table[metric]) and not _told(plain, table[metric]) for metric in _FEATURES
    )


_FEATURES = ("config.speculative", "config.sparse_index", "config.slower_tier", "config.host_sampling")


def _repeat(names: Sequence[str]) -> tuple[str, str] | None:
    """Return the run that sent prompts first and the one that sent them again, by their names."""
    table = aliases()["repeats"]
    first = [name for name in names if _says(name, table["first"])]
    again = [name for name in names if _says(name, table["again"]) and name not in first]
    return (first[0], again[0]) if first and again else None


def _says(arm: str, phrases: Iterable[str]) -> bool:
    text = f" {' '.join(re.split(r'[^a-z0-9.]+', arm.lower()))} "
    return any(f" {phrase} " in text for phrase in phrases)


def _likeness(good: set[str], bad: set[str]) -> tuple[int, int, int, int, int]:
    table = aliases()
    named = len(good & set(table["good"])) + len(bad & set(table["bad"]))
    mended = len((good | bad) & set(table["mended"]))
    differ = _bits_of(good) != _bits_of(bad)
    typed = {word for word in good & bad if word in table["bits"]}
    return named, -mended, int(_load_of(good) == _load_of(bad)), int(differ), len((good & bad) - typed)


def _load_of(words: set[str]) -> set[str]:
    """The words of a run's name that tell its load: those with a number in them that name no format of KV."""
    return {word for word in words if re.search(r"\d", word) and bits_of(word) is None}


def _bits_of(words: Iterable[str]) -> set[float]:
    return {bits for word in words if (bits := bits_of(word)) is not None}


def _worsened(figures: Sequence[Figure], good: str, bad: str) -> float:
    """Return how many times worse ``bad`` did, as the geometric mean over the outcomes that both report."""
    logs = []
    for metric, better in _better().items():
        first = next((one.value for one in figures if _outcome(one) == metric and one.arm == good), None)
        second = next((one.value for one in figures if _outcome(one) == metric and one.arm == bad), None)
        if first is None or second is None or max(first, second) <= 0:
            continue
        # A share that fell to nothing is the clearest of all outcomes, and has no logarithm.
        least = _NOTHING * max(first, second)
        logs.append(math.log(max(first, least) / max(second, least)) * (1 if better == "up" else -1))
    return math.exp(sum(logs) / len(logs)) if logs else 1.0


_NOTHING = 1e-3


def _outcome(one: Figure) -> tuple[str, str]:
    return one.metric, one.statistic


@cache
def _better() -> Mapping[tuple[str, str], str]:
    """Outcome (a metric, and which statistic of it) → which way is better."""
    found: dict[tuple[str, str], str] = {}
    for alias in aliases()["keys"].values():
        metric = alias.get("metric") or alias["of"][0]
        if alias.get("better"):
            found |= {(metric, statistic): alias["better"] for statistic in ("", "p50", "p90", "p95", "p99", "max")}
    return found


def words_of(arm: str) -> set[str]:
    """Return the words of an arm's name."""
    return set(re.split(r"[\s,;/]+", arm.lower()))


def figures_of_arm(stated: Stated, arm: str, beside: str = "") -> list[Figure]:
    """Return the figures of one run: its own, those of all, and those of a run whose name it continues.

    Of a metric's statistics (mean, p50, p99) the plainest counts that the run ``beside``, if any, has as well: a tail
    is compared with a tail. Alone a tail is no mean, and is left out.
    """
    mine = [one for one in stated.figures if one.arm in COMMON or one.arm == arm or words_of(one.arm) < words_of(arm)]
    mine.sort(key=lambda one: (one.statistic not in ("", "p50"), one.statistic, one.arm != arm, one.arm in COMMON))
    theirs = {(one.metric, one.statistic) for one in stated.figures if one.arm == beside}
    found: dict[tuple[str, Labels], Figure] = {}
    for one in mine:
        plain = one.statistic in ("", "p50")
        if one.metric and (plain or (beside and (one.metric, one.statistic) in theirs)):
            found.setdefault((one.metric, one.labels), one)
    return list(found.values())


def said_by_names(stated: Stated, arm: str, other: str) -> dict[str, float]:
    """Return settings of one run that the names of both runs and flags with a value for each of them tell.

    ``graph`` against ``eager``, ``spec`` against ``no speculation``: what one name says and the other does not, the
    other run had the other way round. ``auto`` against ``fp8`` is the model's own type, 16 bits.
    """
    found: dict[str, float] = {}
    for metric, words in aliases()["arm_settings"].items():
        own, others = _told(arm, words), _told(other, words)
        if own is not None or (others is not None and other):
            found[metric] = float(own if own is not None else not others)
    mine, theirs = (sorted(_bits_of(words_of(one))) for one in (arm, other))
    if mine:
        found["config.kv_bits"] = mine[0]
    elif theirs and words_of(arm) & set(aliases()["own_type"]):
        found["config.kv_bits"] = _OWN_BITS
    if (length := _length(arm)) and not any(one.metric == "request.tokens_in" for one in stated.figures):
        found["request.tokens_in"] = length
    if other and _says(arm, aliases()["repeats"]["again"]) and _says(other, aliases()["repeats"]["first"]):
        found["config.prompts_repeat"] = 1.0
    if other:
        values = {name: two[_side(name, two, arm, other, stated)] for name, two in stated.varied.items()}
        found = said_by(values, stated.engine) | found
    return found


_OWN_BITS = 16.0


def _length(arm: str) -> float:
    """Tokens of context that a run's name tells (``fp8 16k``); 0 where it tells none."""
    told = [float(one[:-1]) * 1024 for one in words_of(arm) if re.fullmatch(r"\d+(\.\d+)?k", one)]
    return told[0] if len(told) == 1 else 0.0


def _told(arm: str, words: Mapping[str, Sequence[str]]) -> bool | None:
    """Whether a run's name says that something is on; None where it says nothing of it."""
    text = re.split(r"[^a-z0-9.]+", arm.lower())
    for index, word in enumerate(text):
        if word in words["on"] or word in words.get("off", ()):
            around = {*text[max(0, index - 2) : index], *text[index + 1 : index + 2]}
            denied = bool(around & set(aliases()["denied"]))
            return (word in words["on"]) != denied
    return None


def _side(flag: str, two: tuple[str, str], arm: str, other: str, stated: Stated) -> int:
    """Return which of a flag's two values a run had: by the words of its name, else in the order they are told in."""
    names = list(dict.fromkeys(one.arm for one in stated.figures))
    straight = _fits(flag, two[0], arm) + _fits(flag, two[1], other)
    swapped = _fits(flag, two[1], arm) + _fits(flag, two[0], other)
    if straight != swapped:
        return 0 if straight > swapped else 1
    return 0 if arm in names and other in names and names.index(arm) < names.index(other) else 1


def _fits(flag: str, value: str, arm: str) -> int:
    """How well a flag's value goes with a run's name: its words are there, or the name says on, off, or the flag."""
    words, own = words_of(arm), words_of(value)
    named = bool(words & set(re.split(r"[^a-z0-9]+", flag.lower())))
    on, off = bool(own & {"1", "true", "on", "yes"}), bool(own & {"0", "false", "off", "no", "none"})
    denied = bool(words & set(aliases()["denied"]))
    fits = len(words & own) + int(on and named and not denied) + int(off and not named)
    return fits + int(on and "on" in words) + int(off and denied)


def replicas(figures: Sequence[Figure]) -> list[Figure]:
    """Give figures of runs that differ in a replica's name alone their replica as a label, and the run its own name."""
    whole: dict[str, set[str]] = {}
    for one in figures:
        if (found := _REPLICA.search(one.arm)) is not None:
            whole.setdefault(_REPLICA.sub("", one.arm).strip(), set()).add(found[0].strip())
    kept = {rest for rest, names in whole.items() if len(names) > 1}
    return [_labelled(one, kept) for one in figures]


_REPLICA = re.compile(
    r"(?:^|\s)(?:e|engine|rank|dp|replica|worker|pod|node|instance)[-_#= ]?(?:\d{1,3}|[a-z])$", re.IGNORECASE
)


def _labelled(one: Figure, kept: set[str]) -> Figure:
    found = _REPLICA.search(one.arm)
    rest = _REPLICA.sub("", one.arm).strip()
    if found is None or rest not in kept:
        return one
    return replace(one, arm=rest, labels=labels_of(**dict(one.labels), replica=found[0].strip()))
