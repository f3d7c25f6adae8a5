"""Two sides, quantity by quantity: what changed, what did not, and what the noise does not let one tell.

From the interval of the change: *same* when all of it lies within the band, *changed* when it stays clear of zero,
*unclear* otherwise. Where dozens of quantities are compared a few intervals of 95 % miss by chance, so *changed* asks
for one and a half times the interval.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from kvscope import signals
from kvscope.amounts import amount, change, pair
from kvscope.errors import UsageError, nearest
from kvscope.result.result import Better, Quantity
from kvscope.signals import significance
from kvscope.signals.reading import Missing, Reading
from kvscope.signals.significance import Verdict
from kvscope.store import Segment, Store
from probes import border

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Side:
    """Quantities by name; ``missing`` says why others have no value; ``others`` are segments not looked at.

    ``once``: a benchmark that could have repeated itself did not, so what two runs differ by is not in its errors.
    """

    target: str
    segment: str
    tags: Mapping[str, str]
    quantities: Mapping[str, Quantity]
    missing: Mapping[str, str] = field(default_factory=dict)
    others: tuple[str, ...] = ()
    once: bool = False
    limit: str = ""
    """What limits the engine, in a line; empty where nobody asked."""
    account: Mapping[str, Any] = field(default_factory=dict)
    """The whole account as a report gives it."""


def is_result(text: str) -> bool:
    """Whether a target is a result file of a kvscope benchmark; those of other tools are told by what is in them."""
    path = Path(text)
    if path.suffix != ".json" or not path.is_file():
        return False
    from kvscope.sources.stated.result import looks_result

    with path.open("rb") as file:
        return not looks_result(file.read(1 << 20))


def of_benchmark(path: Path) -> Side:
    """Read a result of another tool's benchmark. SourceError when it is none that is known."""
    from kvscope.sources.stated import result

    found = result.read(path)
    better: dict[str, Better] = {"higher": "higher", "lower": "lower"}
    numbers = [Quantity(one.name, one.value, one.unit, one.error, better.get(one.better, "")) for one in found.numbers]
    return Side(str(path), found.tool, found.tags, {one.name: one for one in numbers})


def with_said(side: Side, same: frozenset[str], changed: frozenset[str], index: int) -> Side:
    """Return a side with what a person says of both: the same in A and B, or changed between them."""
    tags = dict(side.tags) | dict.fromkeys(same, "the same, as you say")
    return replace(side, tags=tags | dict.fromkeys(changed, ("before", "after, as you say")[index]))


def of_result(path: Path) -> Side:
    """Read a result file; UsageError when it is none."""
    try:
        found = border.mapping(border.document(border.read_file(path), "the file"), "the file")
        if found.get("schema") != SCHEMA:
            raise border.Refused(f"schema {border.shown(found.get('schema'))}, expected {SCHEMA}")
        quantities = [Quantity.from_json(one) for one in border.items(found.get("quantities"), "quantities", 100_000)]
        tags = border.tags(found.get("tags"), "tags")
        once = border.mapping(found.get("settings"), "settings").get("repeat") == 1
        bench = border.text(found.get("bench"), "bench")
        return Side(str(path), bench, tags, {one.name: one for one in quantities}, once=once)
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or error
        raise UsageError(f"{path}: {said}; expected the JSON result of a kvscope bench command") from None


def of_store(store: Store, target: str, tags: Mapping[str, str], segment: str | None = None) -> Side:
    """Compute every signal over a segment (the last one without a name); UsageError names the segments there are."""
    segments = store.segments
    names = tuple(dict.fromkeys(one.name for one in segments))
    if segment is not None and segment not in names:
        raise UsageError(f"{target}: no segment {segment!r}{nearest(segment, names)}; there are: {', '.join(names)}")
    chosen = store.segment(segment) if segment is not None else segments[-1]
    found, missing = _signals(store, chosen)
    rest = tuple(name for name in names if name != chosen.name)
    return Side(target, chosen.name, {**tags, **chosen.tags}, found, missing, rest)


def _signals(store: Store, segment: Segment) -> tuple[dict[str, Quantity], dict[str, str]]:
    found, missing = {}, {}
    compute: Callable[[str], Reading | Missing] = lambda name: signals.compute(name, store, segment)  # noqa: E731
    for name in signals.names():
        reading = compute(name)
        if isinstance(reading, Missing):
            missing[name] = reading.reason
        else:
            found[name] = Quantity(name, reading.value, reading.unit, reading.error)
    return found, missing


Outcome = Literal["pass", "fail", "cannot tell"]
_CONDITION = re.compile(r"\s*([\w. ]+?)\s*(>=|<=|>|<)\s*([+-]?\d+(?:\.\d+)?)\s*(%|pp)\s*")


@dataclass(frozen=True, slots=True)
class Gate:
    """What must not be: the change of ``name`` above (or below) ``limit``, relative or, for a share, in points."""

    name: str
    above: bool
    limit: float
    text: str


@dataclass(frozen=True, slots=True)
class Passage:
    """How a gate came out, and why in words."""

    gate: Gate
    outcome: Outcome
    why: str


def parse(text: str) -> Gate:
    """Read ``NAME > +5%`` or ``NAME < -2pp``. UsageError for anything else."""
    matched = _CONDITION.fullmatch(text)
    if matched is None:
        raise UsageError(f"--fail-if {text!r}: expected NAME > +5% or NAME < -5% (pp for points of a share)")
    return Gate(matched[1], matched[2].startswith(">"), float(matched[3]) / 100, text.strip())


def passed(gate: Gate, found: Comparison) -> Passage:
    """Hold a comparison against a gate. UsageError for a quantity that neither side has."""
    change = next((one for one in found.changes if one.name == gate.name), None)
    if change is None:
        names = sorted({*found.a.quantities, *found.b.quantities})
        if gate.name in names:
            return Passage(gate, "cannot tell", "only one side has it")
        raise UsageError(f"--fail-if {gate.text!r}: no quantity {gate.name!r}{nearest(gate.name, names)}")
    return Passage(gate, *_held(gate, change))


def _held(gate: Gate, change: Change) -> tuple[Outcome, str]:
    sign = 1.0 if gate.above else -1.0
    moved, limit = sign * change.change, sign * gate.limit
    said = f"{change.change:+.1%}"
    if change.error is None:
        return "cannot tell", f"{said}, and nobody knows by how much two equal runs differ"
    interval = f"{said} ± {change.error:.1%}"
    if moved - change.error > limit:
        return "fail", interval
    if moved + change.error <= limit:
        return "pass", interval
    return "cannot tell", f"{interval} spans {gate.limit:+.1%}"


WITHIN = 0.05
POINTS = 0.02
"""Shares are compared in points: from 0.1 % to 0.2 % is no doubling worth a line."""
LOAD_TAGS = ("model", "device", "workload", "offered_load")
"""When these differ, what changed may be the load and not the engine."""


@dataclass(frozen=True, slots=True)
class Change:
    """One quantity on both sides; ``change`` is relative, or in points for a share; ``error`` None: not known."""

    name: str
    unit: str
    before: Quantity
    after: Quantity
    change: float
    error: float | None
    verdict: Verdict

    @property
    def points(self) -> bool:
        return self.unit == "ratio"

    @property
    def good(self) -> bool | None:
        """Whether the change is for the better, or None where no direction is better."""
        if not self.after.better or self.verdict != "changed":
            return None
        return (self.change > 0) == (self.after.better == "higher")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Every quantity that both sides have, and those that only one has or none."""

    a: Side
    b: Side
    within: float
    changes: tuple[Change, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    tags: tuple[tuple[str, str, str], ...]
    """Tags that differ: name, value in A, value in B; empty where a side does not say."""

    def of(self, verdict: Verdict) -> list[Change]:
        """The quantities with that verdict, the largest change first."""
        return sorted((one for one in self.changes if one.verdict == verdict), key=lambda one: -abs(one.change))

    @property
    def load_differs(self) -> tuple[str, ...]:
        return tuple(tag for tag, a, b in self.tags if tag in LOAD_TAGS and a and b)


def compare(a: Side, b: Side, within: float = WITHIN) -> Comparison:
    """Hold ``b`` against ``a``."""
    changes = tuple(_changes(a, b, within))
    keys = sorted({*a.tags, *b.tags})
    tags = tuple((key, a.tags.get(key, ""), b.tags.get(key, "")) for key in keys if a.tags.get(key) != b.tags.get(key))
    only_a = tuple(sorted(set(a.quantities) - set(b.quantities)))
    return Comparison(a, b, within, changes, only_a, tuple(sorted(set(b.quantities) - set(a.quantities))), tags)


def _changes(a: Side, b: Side, within: float) -> Iterator[Change]:
    for name, before in a.quantities.items():
        after = b.quantities.get(name)
        if after is None or after.unit != before.unit:
            continue
        moved = significance.change(_reading(after), _reading(before))
        known = before.error is not None and after.error is not None
        band = min(within, POINTS) if moved.points else within
        verdict: Verdict = moved.within(band) if known else "unclear"
        yield Change(name, before.unit, before, after, moved.size, moved.error if known else None, verdict)


def _reading(one: Quantity) -> Reading:
    return Reading(one.value, one.error or 0.0, one.unit)


HEADINGS: dict[Verdict, str] = {
    "changed": "Changed",
    "same": "Did not change",
    "unclear": "Cannot be told: the interval of the change is too wide",
}


def as_text(found: Comparison, show_all: bool = False) -> str:
    """Return the comparison in words; without ``show_all`` what no side measured is only counted."""
    return "\n".join([*_head(found), *_groups(found), *_missing(found, show_all)]).rstrip()


def as_json(found: Comparison) -> str:
    """Return every quantity with its verdict."""
    report = {
        "schema": 1,
        "a": _side(found.a),
        "b": _side(found.b),
        "within": found.within,
        "changes": [_change(one) for one in found.changes],
        "only_a": list(found.only_a),
        "only_b": list(found.only_b),
        "tags": [{"tag": tag, "a": a or None, "b": b or None} for tag, a, b in found.tags],
        "load_differs": list(found.load_differs),
        "missing": {name: reason for name, reason in found.b.missing.items() if name in found.a.missing},
    }
    return json.dumps(report, indent=2, ensure_ascii=False, allow_nan=False)


def _head(found: Comparison) -> Iterator[str]:
    for letter, side in (("A", found.a), ("B", found.b)):
        rest = f"; not looked at: {', '.join(side.others)}" if side.others else ""
        yield f"{letter}  {border.printable(side.target)}, {side.segment}{rest}"
        if side.limit:
            yield f"   limited by {side.limit}"
    for tag, a, b in found.tags:
        yield f"   {tag}: {a or 'not said'} → {b or 'not said'}"
    if found.load_differs:
        yield f"!  {' and '.join(found.load_differs)} differ: what changed may come from there, not from the engine"
    if found.a.once or found.b.once:
        sides = " and ".join(letter for letter, side in (("A", found.a), ("B", found.b)) if side.once)
        yield (
            f"!  {sides} ran once: what the machine did between two runs counts as a change here; "
            "--repeat 3 on both sides tells it apart"
        )
    yield ""


def _groups(found: Comparison) -> Iterator[str]:
    width = max((len(one.name) for one in found.changes), default=0)
    for verdict, heading in HEADINGS.items():
        lines = found.of(verdict)
        band = f" (within ±{found.within:.0%}; shares ±{100 * min(found.within, POINTS):g} points)"
        yield f"{heading}{band if verdict == 'same' else ''}: {len(lines)}"
        for one in lines:
            yield f"  {one.name:<{width}}  {_numbers(one)}"
        yield ""
    wide = f"{significance.WIDER} times its interval of about 95 %"
    yield f"changed: by {wide} or more, so that many lines cannot do it by chance"


def _numbers(one: Change) -> str:
    numbers = pair(one.before.value, one.after.value, one.unit, one.after.error)
    if math.isinf(one.change):
        return f"{numbers}  from nothing"
    size = change(one.change, None if one.error is None or math.isinf(one.error) else one.error, points=one.points)
    word = {True: "  better", False: "  worse", None: ""}[one.good]
    once = "  measured once: repeat it to know the noise" if one.error is None else ""
    return f"{numbers}  {size}{word}{once}"


def _missing(found: Comparison, show_all: bool) -> Iterator[str]:
    for letter, names, side in (("A", found.only_a, found.b), ("B", found.only_b, found.a)):
        if names:
            yield f"Only {letter} has: {len(names)}"
            yield from (f"  {name}  {side.missing.get(name, '')}".rstrip() for name in names)
    nobody = sorted(set(found.a.missing) & set(found.b.missing))
    if nobody and show_all:
        yield f"Neither has: {len(nobody)}"
        yield from (f"  {name}  {found.b.missing[name]}" for name in nobody)
    elif nobody:
        yield f"Neither has {len(nobody)} more signals (--all lists them)"


def _side(side: Side) -> dict[str, Any]:
    return {
        "target": side.target,
        "segment": side.segment,
        "tags": dict(side.tags),
        "other_segments": list(side.others),
        **({"account": dict(side.account)} if side.account else {}),
    }


def _change(one: Change) -> dict[str, Any]:
    return {
        "name": one.name,
        "unit": one.unit,
        "verdict": one.verdict,
        "before": one.before.value,
        "before_error": _finite(one.before.error),
        "after": one.after.value,
        "after_error": _finite(one.after.error),
        "change": _finite(one.change),
        "change_error": _finite(one.error),
        "change_in": "points" if one.points else "relative",
        "good": one.good,
        "says": amount(one.after.value, one.unit, one.after.error),
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
