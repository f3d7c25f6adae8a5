"""What a printed label means, and the numbers under it: ``P99 TTFT (ms)`` is a statistic of a quantity in a unit.

A label is taken apart into statistic, unit and quantity; what is left must be a name in ``named.yaml``, whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

NUMBER = r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d{1,15})(?:\.\d{1,15})?(?:[eE][-+]?\d{1,2})?"
VALUE = re.compile(rf"~?\s*({NUMBER})(?:\s*(?:±|\+/-)\s*{NUMBER})?\s*([A-Za-zµ%/]{{0,20}}(?: per (?:second|sec))?)\.?")


class Cell(NamedTuple):
    """One number of a text: what it is, which statistic of it, and its value in ``named.yaml``'s unit."""

    quantity: str
    statistic: str
    value: float


@dataclass(slots=True)
class Run:
    """The figures of one run, in the order and under the title they were printed."""

    title: str = ""
    lines: list[str] = field(default_factory=list)
    cells: dict[tuple[str, str], float] = field(default_factory=dict)
    labels: set[str] = field(default_factory=set)
    kv_bits: float | None = None

    def take(self, cells: Iterable[Cell], label: str = "") -> bool:
        """Add what a label told, where that is not known yet; False where it told nothing."""
        before = len(self.cells)
        for cell in cells:
            self.cells.setdefault((cell.quantity, cell.statistic), cell.value)
        if len(self.cells) > before:
            self.labels.add(label)
        return len(self.cells) > before

    def get(self, quantity: str, *statistics: str) -> float | None:
        """Return the first statistic that is told."""
        return next((self.cells[quantity, one] for one in statistics if (quantity, one) in self.cells), None)


@cache
def table() -> tuple[dict[str, str], dict[str, str], dict[str, float], dict[str, Any]]:
    """Return phrase → quantity, word → statistic, unit → seconds or bytes, and each quantity's entry."""
    text = (Path(__file__).parent / "named.yaml").read_text(encoding="utf-8")
    found = yaml.safe_load(text)
    phrases = {phrase: name for name, one in found["quantities"].items() for phrase in one["names"]}
    statistics = {word: name for name, words in found["statistics"].items() for word in words}
    return phrases, statistics, found["units"], found["quantities"]


class Label(NamedTuple):
    """What a label means: quantity, statistics (several where it lists them), and its unit's size (None: not told)."""

    quantity: str
    statistics: tuple[str, ...]
    scale: float | None


_PER_S = (
    (re.compile(r"\b(?:tokens?|toks?|t)\s*(?:/|per )\s*(?:seconds?|sec|s)\b|\btoken/sec\b|\btps\b"), "tokens per s"),
    (re.compile(r"\b(?:requests?|reqs?|r)\s*(?:/|per )\s*(?:seconds?|sec|s)\b|\b(?:rps|qps)\b"), "requests per s"),
    (re.compile(r"(?:/|\bper )\s*(?:seconds?|sec|s)\b"), " per s"),
)
_PER_MIN = re.compile(r"\s*(?:/|\bper )\s*min(?:ute)?\b")
_BRACKETS = re.compile(r"[(\[]([^()\[\]]{0,60})[)\]]")


def _unit(text: str) -> float | None:
    return table()[2].get(_plain(text))


def _plain(text: str) -> str:
    """Return a label or unit in lower case with every way to write a rate made one."""
    for pattern, words in _PER_S:
        text = pattern.sub(words, text)
    return " ".join(text.split())


@lru_cache(8192)
def label_of(text: str) -> Label | None:
    """Return what a label names; None where it is not whole the name of anything."""
    if not 1 < len(text) < 100:
        return None
    phrases, statistics, units, _ = table()
    words = re.sub(r"[-_*`#:]", " ", text.lower())
    scale: float | None = None
    of = ""
    named: list[str] = []
    for inside in _BRACKETS.findall(words):
        parts = [one.strip() for one in re.split(r"[,/]", inside) if one.strip()]
        rest = [word for word in _plain(inside).split() if word not in statistics]
        if (size := units.get(" ".join(rest))) is not None:
            scale, of = size, " ".join(rest)
            named += [statistics[word] for word in _plain(inside).split() if word in statistics]
        elif parts and all(one in statistics for one in parts):
            named += [statistics[one] for one in parts]
    words, minutes = _PER_MIN.subn(" per s", _BRACKETS.sub(" ", words))
    every = [word for word in _plain(words).split() if word != "/"]
    # "max concurrency" is a name; "max" is a statistic elsewhere.
    whole = " ".join(every) in phrases
    left = every if whole else [word for word in every if word not in statistics and word not in _FILLERS]
    named += [] if whole else [statistics[word] for word in every if word in statistics]
    # A time's unit as the last word; a rate's is a part of its name.
    if len(left) > 1 and left[-2] != "per" and left[-1] in units and left[-1] not in _NOUNS:
        scale = units[left.pop()]
    quantity = phrases.get(" ".join(left)) or phrases.get(f"{' '.join(left)} {of}")
    if quantity is None:
        return None
    return Label(quantity, tuple(named) or ("",), 1 / 60 if minutes else scale)


_FILLERS = frozenset({"actual", "achieved", "measured", "overall", "offline", "online", "the", "of"})
_NOUNS = frozenset({"tokens", "token", "tok", "requests", "count", "rate", "k"})


def cells_of(label: Label, text: str) -> Iterator[Cell]:
    """Yield the numbers of a value under its label; nothing where a latency's unit is told by neither."""
    quantities = table()[3]
    text = text.strip().strip("*`'\"").replace("**", "").removeprefix("--->").strip()
    parts = [one for one in re.split(r"\s*/\s*(?=[\d*])|,\s+", text) if one] if len(label.statistics) > 1 else [text]
    matches = [VALUE.fullmatch(part.strip("* `")) for part in parts]
    if len(matches) != len(label.statistics) or any(one is None for one in matches):
        return
    kind = quantities[label.quantity]["unit"]
    last = next((one[2] for one in reversed(matches) if one is not None and one[2]), "")
    for statistic, matched in zip(label.statistics, matches, strict=True):
        assert matched is not None
        unit = (matched[2] or last).lower()
        scale = label.scale
        if unit:
            scale = _unit(unit)
            if scale is None:
                return
        if scale is None and kind == "s" and label.quantity != "duration":
            return
        if "%" in unit and kind != "share":
            return
        value = float(matched[1].replace(",", "")) * (scale if scale is not None else 1.0)
        if statistic != "none" and abs(value) < 1e18:
            yield Cell(label.quantity, statistic, value)


def of_document(document: Mapping[str, Any], scale: float | None = None) -> Run:
    """Return the figures of a JSON document by its names; ``scale``: a latency's unit where nothing tells it."""
    run = Run()
    _walk(document, "", scale, run, 0)
    return run


_OTHERS = ("errored", "incomplete", "total", "failures", "warmup")
"""Parts of a document about requests that did not end well, or about all."""


def _walk(node: Mapping[str, Any], name: str, scale: float | None, run: Run, depth: int) -> None:
    statistics = table()[1]
    own = label_of(name.replace("_", " ")) if name else None
    unit = node.get("units", node.get("unit"))
    told = _unit(str(unit).lower()) if unit is not None else None
    for key, value in list(node.items())[:2000] if depth < 8 else ():
        text = str(key).replace("_", " ")
        if isinstance(value, Mapping):
            if text.lower() not in _OTHERS:
                _walk(value, name if text.lower() in ("percentiles", "successful") else text, scale, run, depth + 1)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            label = label_of(text)
            if own is not None and text.lower() in statistics:
                label = own._replace(statistics=(statistics[text.lower()],), scale=own.scale or told)
            if label is None:
                continue
            if label.scale is None and scale is not None:
                label = label._replace(scale=scale)
            run.take(cells_of(label, f"{value:.12g}"))
