"""Stated figures under canonical names: units, aliases of reports, names of engines' pages, arms of an experiment."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from kvscope import kv_types
from kvscope.errors import nearest
from kvscope.sources import maps
from kvscope.sources.settings import Settings
from probes.catalog import CATALOG, COUNTER, metric_of
from probes.sample import Labels

COMMON = ("", "both", "all")
"""Arms whose figures belong to every run."""
MEASURED = ("", "reported", "range_mid", "measured")
_MOST = 5000

_UNITS: Mapping[str, Mapping[str, float]] = {
    "s": {"s": 1, "sec": 1, "seconds": 1, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "min": 60},
    "ratio": {"ratio": 1, "%": 0.01, "percent": 0.01, "x": 1},
    "B": {
        "b": 1,
        "bytes": 1,
        "kb": 1e3,
        "mb": 1e6,
        "gb": 1e9,
        "tb": 1e12,
        "kib": 1 << 10,
        "mib": 1 << 20,
        "gib": 1 << 30,
        "tib": 1 << 40,
    },
    "tokens": {"tokens": 1, "tok": 1, "token": 1, "k": 1e3, "ktok": 1e3, "m": 1e6},
}
"""Catalogue unit → other units of it. A rate is looked up without its ``/s``."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One stated number; ``key`` is the name it was stated under, ``metric`` what it is (empty: not known)."""

    key: str
    metric: str
    labels: Labels
    value: float
    arm: str = ""
    total: bool = False
    """A count over the whole run rather than a rate or a state."""
    statistic: str = ""
    """``p99`` and the like; empty for a mean, or where nobody says."""


@dataclass(slots=True)
class Stated:
    """What a document states: figures, settings of each arm, who it is of, and names that nobody knows."""

    engine: str
    tags: dict[str, str] = field(default_factory=dict)
    figures: list[Figure] = field(default_factory=list)
    settings: dict[str, float] = field(default_factory=dict)
    varied: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Flag → its two values, where one run had the one and the other the other (``fp8 vs auto``, ``1 -> 2``)."""
    seconds: float = 0.0
    """How long the run took, where that was said: totals become rates."""
    unknown: list[str] = field(default_factory=list)
    what: str = "figures"
    notes: list[str] = field(default_factory=list)
    """What a person should know of how the document was read."""
    report: bool = False
    """Whether it tells of trouble, and perhaps of its cure, rather than of a change somebody tried."""
    arms: dict[str, str] = field(default_factory=dict)
    """Arm → what its document calls it, where that is another name."""


@cache
def aliases() -> Mapping[str, Any]:
    """Return the table of names: ``aliases.yaml`` beside this file."""
    found: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "aliases.yaml").read_text(encoding="utf-8"))
    return found


def number_of(value: object) -> tuple[float, str] | None:
    """Return a stated value and the unit written behind it (``28.9 ms``, ``>0``); None when it is no number."""
    if isinstance(value, bool):
        return float(value), ""
    if isinstance(value, int | float):
        try:
            return (float(value), "") if math.isfinite(value) else None
        except OverflowError:
            return None
    if not isinstance(value, str) or len(value) > 60:
        return None
    if value.strip() == ">0":
        return 1.0, ""
    matched = re.fullmatch(r"[~≈]?\s*([+-]?[\d,]*\.?\d+(?:[eE][+-]?\d+)?)\s*([%A-Za-zµ/]*)", value.strip())
    if matched is None:
        return None
    try:
        found = float(matched[1].replace(",", ""))
    except ValueError:
        return None
    return (found, matched[2]) if math.isfinite(found) else None


def figure_of(name: str, value: float, unit: str, arm: str, stated: Stated, phase: str = "") -> list[Figure]:
    """Return a stated figure under its canonical name, or under none; a name that means nothing is listed."""
    metric, labels, factor, rest = _meaning(name, stated.engine, phase)
    statistic = ""
    if not metric:
        plain, statistic = _plain(name)
        metric, labels, factor, rest = _meaning(plain, stated.engine, phase)
        factor *= _factor(name, plain, metric)
    if not metric:
        if name not in stated.unknown:
            stated.unknown.append(name)
        return [Figure(name, "", (), value, arm)]
    if rest is not None:
        share = value / 100 if unit.strip() in ("%", "percent") else value
        _, bottom = rest
        whole = 1000.0 * (1 - share) if bottom.endswith("!") else 1000.0
        return [Figure(name, metric, labels, 1000.0 * share, arm), Figure(name, bottom.rstrip("!"), (), whole, arm)]
    line = metric_of(metric)
    scaled, known = _scaled(value, unit, line.unit if line else "")
    total = line is not None and line.kind == COUNTER and bool(unit) and not unit.rstrip().endswith(("/s", "ps"))
    alias = aliases()["keys"].get(name, {})
    if alias.get("percent") and scaled > 1:
        scaled /= 100
    return [Figure(name, metric, labels, scaled if known else scaled * factor, arm, total, statistic)]


_TAIL = re.compile(r"[_. ](p\d{1,2}|median|max|min|mean|avg|average)(?=_|$)")
_IN_NAME = re.compile(r"_(s|ms|us|gb|gib|mb|mib|bytes|tok|tokens|ratio|pct)$")


def _plain(name: str) -> tuple[str, str]:
    """Return a name without its statistic, and without its unit where only that one is known; and the statistic."""
    found = _TAIL.search(name)
    statistic = found[1] if found else ""
    text = _TAIL.sub("", name, count=1)
    if text not in aliases()["keys"]:
        text = _IN_NAME.sub("", text)
    return text, "" if statistic in ("mean", "avg", "average") else {"median": "p50"}.get(statistic, statistic)


def _factor(name: str, plain: str, metric: str) -> float:
    """What a unit at the end of a name multiplies by; 1 where an alias knows the name with it."""
    found = _IN_NAME.search(_TAIL.sub("", name, count=1))
    line = metric_of(metric)
    if found is None or line is None or plain.endswith(found[0]):
        return 1.0
    value, known = _scaled(1.0, found[1], line.unit)
    return value if known else 1.0


def _scaled(value: float, unit: str, wanted: str) -> tuple[float, bool]:
    """Return a value in the catalogue's unit; False where the unit says nothing and the name's own factor counts."""
    text = unit.strip().removesuffix("/s").removesuffix("ps").strip()
    table = _UNITS.get(wanted.removesuffix("/s"), {})
    if text in table:
        return value * table[text], True
    low = text.lower()
    return (value * table[low], True) if low in table else (value, False)


def _meaning(name: str, engine: str, phase: str) -> tuple[str, Labels, float, tuple[str, str] | None]:
    """Return metric, labels, factor, and for a share of two counters (top, bottom); empty where nobody knows it."""
    text = name.strip()
    alias = aliases()["keys"].get(text) or aliases()["keys"].get(text.lower().replace("_", " "))
    if alias is not None:
        if "of" in alias:
            top, bottom = alias["of"]
            return top, (), 1.0, (top, bottom if bottom else f"{alias['rest']}!")
        metric, labels = _labelled(alias["metric"].replace("{phase}", phase or "decode"))
        return metric, labels, float(alias.get("factor", 1.0)), None
    metric, labels = _labelled(text)
    if metric_of(metric) is not None:
        return metric, labels, 1.0, None
    for entry in maps.entries(engine):
        if entry.name in (text, f"{text}_total") and entry.metric:
            return entry.metric, entry.labels, entry.scale, None
    return "", (), 1.0, None


def _labelled(text: str) -> tuple[str, Labels]:
    """Split ``kv.pool_usage_ratio{pool=window}``."""
    metric, brace, rest = text.partition("{")
    if not brace:
        return metric, ()
    pairs = [part.partition("=") for part in rest.rstrip("}").split(",")]
    return metric, tuple(sorted((name.strip(), value.strip().strip("\"'")) for name, _, value in pairs))


def known_names(engine: str) -> list[str]:
    """Return every name a figure may have."""
    return [*aliases()["keys"], *CATALOG, *(entry.name for entry in maps.entries(engine))]


def unknown_notice(stated: Stated) -> list[str]:
    """Say which names nobody knows, each with the nearest that is known."""
    known = known_names(stated.engine)
    return [f"not a name that is known: {name}{nearest(name, known)}" for name in stated.unknown[:20]]


def bits_of(word: str) -> float | None:
    """Return the bits of a KV element by a word of a report; None where the word names no format."""
    found = kv_types.find(word)
    if found is not None:
        return found.bits()
    bits = aliases()["bits"].get(word)
    return float(bits) if bits is not None else None


def take_settings(stated: Stated, flags: Mapping[Any, Any]) -> None:
    """Take settings: ``config.NAME``, an engine's own options, and the flags that reports name in their own ways."""
    settings = Settings(stated.engine)
    for name, value in list(flags.items())[:_MOST]:
        text = str(name)
        if (two := _VARIED.fullmatch(str(value).strip())) is not None:
            stated.varied[text] = two[1].strip(), two[2].strip()
        elif CATALOG.get(text) is not None and (found := number_of(value)) is not None:
            settings.say(text, found[0], "person", str(value))
        else:
            _say(settings, text, value)
    stated.settings |= settings.values() | _types(flags, stated.engine)
    if tags := settings.tags():
        stated.tags |= tags


def _say(settings: Settings, name: str, value: object) -> None:
    """Take one flag: as reports name it, else as the engine does."""
    known = aliases()["flags"].get(name, [])
    said = False
    for one in known if isinstance(known, list) else [known]:
        if (read := _READ[one["read"]](value)) is not None:
            settings.say(one["metric"], read, "person", str(value))
            said = True
    if not said:
        settings.read(name, str(value), "person")


def said_by(flags: Mapping[str, str], engine: str) -> dict[str, float]:
    """Return what flags of one run mean, under canonical names."""
    settings = Settings(engine)
    for name, value in flags.items():
        _say(settings, name, value)
    return settings.values()


_VARIED = re.compile(r"(.{1,60}?)\s+(?:vs\.?|versus|->|→)\s+(.{1,60})")
"""A flag's value in each of two runs."""


def _types(flags: Mapping[Any, Any], engine: str) -> dict[str, float]:
    """Say whether the device has an attention kernel for the types of K and V."""
    known = aliases()["device_types"]
    pair = [str(flags[known[one]]).split()[0] for one in ("k", "v") if str(flags.get(known[one], "")).split()]
    if not engine.startswith(known["engine"]) or len(pair) < 2:
        return {}
    everything = any(known["all"] in str(name) and str(value).upper() == "ON" for name, value in flags.items())
    return {"config.kv_type_off_path": float(not everything and pair not in known["pairs"])}


def _flag(value: Any) -> float:
    if isinstance(value, bool | int):
        return float(bool(value))
    word = (str(value).lower().split() or [""])[0]
    return 0.0 if word in ("off", "0", "false", "no", "none") else 1.0


def _common_multiple(value: Any) -> float | None:
    numbers = [int(word) for word in re.findall(r"\d{1,9}", str(value))[:20]]
    return float(math.lcm(*numbers)) if numbers else None


def _bits(value: Any) -> float | None:
    words = [bits for word in re.split(r"[\s,/]+", str(value).lower()) if (bits := bits_of(word)) is not None]
    return words[0] if len(words) == 1 else None


_READ: dict[str, Any] = {
    "number": lambda value: float(value) if isinstance(value, int | float) else None,
    "flag": _flag,
    "not_flag": lambda value: 1.0 - _flag(value),
    "present": _flag,
    "common_multiple": _common_multiple,
    "says_window": lambda value: float("window" in str(value).lower()),
    "says_indexed": lambda value: float(str(value).lower() in ("dsa", "nsa")),
    "bits": _bits,
    "says_random": lambda value: float("random" in str(value).lower()),
    "says_state": lambda value: float(any(word in str(value).lower() for word in ("recurrent", "mamba", "linear"))),
    "first_number": lambda value: next((float(one) for one in re.findall(r"\d+", str(value))[:1]), None),
    "latent_topk": lambda value: 2048.0,
    "overcommits": lambda value: 0.0 if "max_util" in str(value).lower() else None,
    "host_sampling": lambda value: float(any(word in str(value).lower() for word in ("penalt", "grammar", "guided"))),
}
"""How a flag's text becomes a number; None where it says nothing that can be used."""
