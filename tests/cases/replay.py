"""Public trouble reports as streams: their figures under canonical names, the better run as the baseline.

What a report gives is `engine`, `version`, `config_flags` and `observations`; only figures that were reported (or the
middle of a reported range) become samples. Names are in ``aliases.yaml``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.steady import Steady

ALIASES: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "aliases.yaml").read_text(encoding="utf-8"))
_MEASURED = ("reported", "range_mid")
_COMMON = ("", "both", "all")


class Figure(NamedTuple):
    """One observation that may be used as a measurement."""

    key: str
    value: float
    arm: str


def segments(case: Mapping[str, Any]) -> list[Steady]:
    """Return one segment, or two where the report compares runs: the better one first."""
    figures = _figures(case)
    baseline, current = arms(figures)
    settings = _settings(case)
    tags = {"engine": str(case["engine"]), "version": str(case["version"]), "workload": str(case["id"])}
    ratios = [one for one in figures if one.key in ALIASES["ratios"]]
    now = {**settings, **_values(figures, current, case), **{ALIASES["ratios"][one.key]: one.value for one in ratios}}
    found = []
    if baseline:
        found.append(Steady("before", {**settings, **_values(figures, baseline, case)}, tags))
    elif ratios:
        found.append(Steady("before", {**settings, **{ALIASES["ratios"][one.key]: 1.0 for one in ratios}}, tags))
    return [*found, Steady("after", now, tags)]


def arms(figures: list[Figure]) -> tuple[str, str]:
    """Return baseline and current arm. The better run is the baseline: a report is made because something got worse.

    Of all pairs that one whose names say which was good and bad; whose runs were not mended; that differ in the bits of
    KV; that are otherwise most alike in name; that are most apart in outcome.
    """
    best: tuple[tuple[float, ...], str, str] | None = None
    names = list(dict.fromkeys(one.arm for one in figures if one.arm not in _COMMON))
    for good in names:
        for bad in names:
            worse = _worsened(figures, good, bad)
            if good == bad or worse <= 1.0:
                continue
            score = (*_likeness(_words(good), _words(bad)), worse)
            if best is None or score > best[0]:
                best = score, good, bad
    if best:
        return best[1], best[2]
    return "", names[0] if names else ""


def _likeness(good: set[str], bad: set[str]) -> tuple[int, int, int, int]:
    named = len(good & set(ALIASES["good"])) + len(bad & set(ALIASES["bad"]))
    mended = len((good | bad) & set(ALIASES["mended"]))
    bits = ALIASES["bits"]
    differ = {bits[word] for word in good if word in bits} != {bits[word] for word in bad if word in bits}
    return named, -mended, int(differ), len((good & bad) - set(bits))


def _worsened(figures: list[Figure], good: str, bad: str) -> float:
    """Return how many times worse ``bad`` did, as the geometric mean over the outcomes that both report."""
    logs = []
    for key, alias in ALIASES["keys"].items():
        first = next((one.value for one in figures if one.key == key and one.arm == good), None)
        second = next((one.value for one in figures if one.key == key and one.arm == bad), None)
        if alias.get("better") and first and second and first > 0 and second > 0:
            logs.append(math.log(first / second) * (1 if alias["better"] == "up" else -1))
    return math.exp(sum(logs) / len(logs)) if logs else 1.0


def _words(arm: str) -> set[str]:
    return set(re.split(r"[\s,;/]+", arm.lower()))


def _figures(case: Mapping[str, Any]) -> list[Figure]:
    found = []
    for one in case.get("observations") or ():
        value = _number(one.get("value"))
        if one.get("key") == "event.oom_phase" and one.get("provenance") in _MEASURED:
            value = 1.0
        if one.get("provenance") in _MEASURED and value is not None:
            found.append(Figure(str(one["key"]), value, str(one.get("arm") or "")))
    return found


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, int | float):
        return float(value)
    return 1.0 if isinstance(value, str) and value.strip() == ">0" else None


def _values(figures: list[Figure], arm: str, case: Mapping[str, Any]) -> dict[str, float]:
    # A run whose name continues another's ("before, with a stall") has that one's figures too.
    mine = [one for one in figures if one.arm in _COMMON or one.arm == arm or _words(one.arm) < _words(arm)]
    mine.sort(key=lambda one: (one.arm != arm, one.arm in _COMMON))
    by_key = {one.key: one.value for one in reversed(mine)}
    phase = next((str(o["value"]) for o in case.get("observations") or () if o.get("key") == "phase"), "")
    found: dict[str, float] = {}
    for key, value in by_key.items():
        found |= _canonical(key, value, by_key, phase)
    bits = [ALIASES["bits"][word] for word in _words(arm) if word in ALIASES["bits"]]
    if bits:
        found["config.kv_bits"] = min(bits)
    return found


def _canonical(key: str, value: float, by_key: Mapping[str, float], phase: str) -> dict[str, float]:
    alias = ALIASES["keys"].get(key)
    if alias is None or (not phase and "{phase}" in alias.get("metric", "")):
        return {}
    value *= alias.get("factor", 1.0)
    if alias.get("percent") and value > 1:
        value /= 100
    if "per" in alias:
        if not by_key.get(alias["per"]):
            return {}
        return {alias["metric"]: value / by_key[alias["per"]], "time.step": 1.0}
    if "of" in alias:
        top, bottom = alias["of"]
        return {top: 1000 * value, (bottom or alias["rest"]): 1000 * (1.0 if bottom else 1 - value)}
    return {alias["metric"].replace("{phase}", phase): value}


def _settings(case: Mapping[str, Any]) -> dict[str, float]:
    flags = {str(name): value for name, value in (case.get("config_flags") or {}).items()}
    found = {}
    for name, value in flags.items():
        alias = ALIASES["flags"].get(name)
        read = _READ[alias["read"]](value) if alias else None
        if alias and read is not None:
            found[alias["metric"]] = read
    return found | _types(flags, str(case["engine"]))


def _types(flags: Mapping[str, Any], engine: str) -> dict[str, float]:
    """Say whether the device has an attention kernel for the types of K and V."""
    known = ALIASES["device_types"]
    pair = [str(flags[known[one]]).split()[0] for one in ("k", "v") if known[one] in flags]
    if not engine.startswith(known["engine"]) or len(pair) < 2:
        return {}
    everything = any(known["all"] in name and str(value).upper() == "ON" for name, value in flags.items())
    return {"config.kv_type_off_path": float(not everything and pair not in known["pairs"])}


def _flag(value: Any) -> float | None:
    if isinstance(value, bool | int):
        return float(bool(value))
    word = (str(value).lower().split() or [""])[0]
    return 0.0 if word in ("off", "0", "false", "no", "none") else 1.0


def _common_multiple(value: Any) -> float | None:
    numbers = [int(word) for word in re.findall(r"\d+", str(value))]
    return float(math.lcm(*numbers)) if numbers else None


def _bits(value: Any) -> float | None:
    words = [word for word in re.split(r"[\s,/]+", str(value).lower()) if word in ALIASES["bits"]]
    return float(ALIASES["bits"][words[0]]) if len(words) == 1 else None


_READ: dict[str, Any] = {
    "number": lambda value: float(value) if isinstance(value, int | float) else None,
    "flag": _flag,
    "not_flag": lambda value: 1.0 - (_flag(value) or 0.0),
    "present": lambda value: _flag(value),
    "common_multiple": _common_multiple,
    "says_window": lambda value: float("window" in str(value).lower()),
    "says_indexed": lambda value: float(str(value).lower() in ("dsa", "nsa")),
    "bits": _bits,
}
"""How a flag's text becomes a number; None where it says nothing that can be used."""
