"""Playbooks, one diagnostic rule per YAML file: every key and signal known, every mistake named with its place."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, cast, get_args

from kvscope import signals
from kvscope.advice import read_fixes
from kvscope.authored import Authored, read
from kvscope.checks import BOUND_KEY, CHANGES, Bound, Check, Kind, parse_bound, parse_comparison
from kvscope.errors import UsageError, nearest
from kvscope.finding import VERDICT_ORDER
from kvscope.playbook_schema import (
    SCHEMA,
    Cause,
    Compare,
    ExperimentRule,
    GainKind,
    GainRule,
    Playbook,
    Provenance,
    RivalRule,
    Status,
    Triage,
)
from kvscope.signals.algebra import SHARE

__all__ = ["Playbook", "load_all", "load_playbook", "shipped_dir"]

REQUIRED = ("schema", "id", "title", "status", "symptom", "cause", "tests")
_KEYS = (*REQUIRED, "triage", "compare", "rivals", "gain", "experiment", "fix", "notes", "thresholds")
GAIN_SIGNALS = ("remaining_of", "pool_usage", "wasted_share", "batch_growth", "per_token_share", "also_replaces")
SOURCES = ("measured", "vendor", "literature", "arithmetic", "judgement")


def load_playbook(path: Path) -> Playbook:
    """Read one file; UsageError names file, line, key and the nearest valid name."""
    top = read(path)
    top.only(_KEYS, REQUIRED)
    if top.text("schema") != str(SCHEMA):
        raise top.fail(f"this kvscope reads schema {SCHEMA}, the file says {top.text('schema')!r}", "schema")
    if top.text("id") != path.stem:
        raise top.fail(f"{top.text('id')!r} must equal the file's name, {path.stem!r}", "id")
    compare = _compare(top)
    symptom = _checks(top, "symptom", compare)
    if not symptom:
        raise top.fail("at least one check is needed", "symptom")
    cause, rivals = _cause(top, compare), _rivals(top, compare)
    named = [*symptom, *cause.checks, *cause.any, *(c for rival in rivals for c in rival.excluded_when)]
    return Playbook(
        id=top.text("id"),
        title=top.text("title"),
        status=cast(Status, top.choice("status", get_args(Status))),
        compare=compare,
        symptom=symptom,
        cause=cause,
        rivals=rivals,
        gain=_gain(top),
        experiment=_experiment(top),
        fix=read_fixes(top),
        tests=_tests(top),
        notes="; ".join(top.texts("notes")),
        thresholds=_thresholds(top, {check.name for check in named}),
        path=path,
        triage=cast(Triage, top.choice("triage", get_args(Triage), "kernel")),
    )


def load_all(extra_dirs: Iterable[Path] = ()) -> tuple[Playbook, ...]:
    """Read every playbook that ships, then those of ``extra_dirs``; retired ones are checked and left out."""
    found: dict[str, Playbook] = {}
    for folder in (shipped_dir(), *map(Path, extra_dirs)):
        if not folder.is_dir():
            raise UsageError(f"{folder}: no such folder of playbooks")
        for path in sorted(folder.glob("*.yaml")):
            playbook = load_playbook(path)
            if playbook.id in found:
                raise UsageError(f"{path}:1: id {playbook.id!r} is taken by {found[playbook.id].path}")
            found[playbook.id] = playbook
    for playbook in found.values():
        for rival in playbook.rivals:
            if rival.look and rival.look not in found:
                hint = nearest(rival.look, found)
                raise UsageError(f"{playbook.path}: rivals.{rival.name}.look: no playbook {rival.look!r}{hint}")
    return tuple(playbook for playbook in found.values() if playbook.status != "retired")


def shipped_dir() -> Path:
    """Return the folder of shipped playbooks: inside the wheel, else at the root of a checkout."""
    here = Path(__file__).resolve().parent
    inside = here / "playbooks"
    return inside if inside.is_dir() else here.parent / "playbooks"


def _compare(top: Authored) -> Compare | None:
    block = top.mapping("compare")
    if block is None:
        return None
    block.only(("baseline", "current", "same", "optional"))
    optional = block.choice("optional", ("true", "false"), "false") == "true"
    return Compare(block.text("baseline", ""), block.text("current", ""), block.texts("same"), optional)


def _cause(top: Authored, compare: Compare | None) -> Cause:
    block = _block(top, "cause")
    block.only(("says", "slug", "checks", "any"), ("says", "slug"))
    checks, alternatives = _checks(block, "checks", compare), _checks(block, "any", compare)
    if not checks and not alternatives:
        raise block.fail("at least one check is needed, under 'checks' or 'any'")
    slug = block.text("slug")
    if not slug.replace("_", "").isalnum() or slug != slug.lower():
        raise block.fail(f"{slug!r}: expected lower case words joined by _", "slug")
    return Cause(block.text("says"), slug, checks, alternatives)


def _rivals(top: Authored, compare: Compare | None) -> tuple[RivalRule, ...]:
    block = top.mapping("rivals")
    found = []
    for name in block or ():
        one = _block(cast(Authored, block), name)
        one.only(("says", "excluded_when", "look"), ("says", "excluded_when"))
        checks = tuple(
            _check(check, name if i == 0 else f"{name}_{i + 1}", compare)
            for i, check in enumerate(one.mappings("excluded_when"))
        )
        found.append(RivalRule(name, one.text("says"), checks, one.text("look", "")))
    return tuple(found)


def _gain(top: Authored) -> GainRule | None:
    block = top.mapping("gain")
    if block is None:
        return None
    keys = ("remaining", "growth_limit", "measured_by_fall", "measured_by_rise", *GAIN_SIGNALS)
    block.only(("kind", "signal", "of", *keys), ("kind", "signal", "of"))
    kind = cast(GainKind, block.choice("kind", get_args(GainKind)))
    remaining = parse_bound(block.text("remaining", "0"))
    if remaining is None or remaining.points or remaining.size >= 1:
        raise block.fail(f"{block.text('remaining')!r}: expected a share below 1, such as 30%", "remaining")
    measured_by: tuple[str, Literal["up", "down", ""]] = ("", "")
    if "measured_by_fall" in block and "measured_by_rise" in block:
        raise block.fail("a gain is measured by one signal, and here are two", "measured_by_rise")
    if "measured_by_fall" in block:
        measured_by = _signal(block, "measured_by_fall"), "down"
    elif "measured_by_rise" in block:
        measured_by = _signal(block, "measured_by_rise"), "up"
    named: dict[str, Any] = {key: _signal(block, key) for key in GAIN_SIGNALS if key in block}
    limit = _growth_limit(block)
    gain = (kind, _signal(block, "signal"), block.text("of"), remaining.size, *measured_by)
    return GainRule(*gain, growth_limit=limit, **named)


def _growth_limit(block: Authored) -> float:
    text = block.text("growth_limit", "0")
    try:
        limit = float(text.removeprefix("x"))
    except ValueError:
        limit = -1.0
    if "growth_limit" in block and not 1 < limit < math.inf:
        raise block.fail(f"{text!r}: expected a factor above 1, such as x2", "growth_limit")
    return limit


def _experiment(top: Authored) -> ExperimentRule | None:
    block = top.mapping("experiment")
    if block is None:
        return None
    block.only(("change", "hold", "run", "set", "predict"), ("change", "predict"))
    knobs = block.mapping("set")
    return ExperimentRule(
        change=block.text("change"),
        hold=block.texts("hold"),
        run=block.text("run", ""),
        set=tuple((name, knobs.text(name)) for name in knobs) if knobs else (),
        predict=_checks(block, "predict", Compare()),
    )


def _tests(top: Authored) -> tuple[tuple[str, tuple[str, ...]], ...]:
    block = _block(top, "tests")
    block.only(VERDICT_ORDER)
    return tuple((verdict, block.texts(verdict)) for verdict in block)


def _thresholds(top: Authored, known: set[str]) -> dict[str, Provenance]:
    block = top.mapping("thresholds")
    found = {}
    for name in block or ():
        one = _block(cast(Authored, block), name)
        if name not in known:
            raise one.fail(f"no check of that name{nearest(name, known)}")
        one.only(("source", "says"), ("source", "says"))
        found[name] = Provenance(cast(Any, one.choice("source", SOURCES)), one.text("says"))
    return found


def _checks(parent: Authored, key: str, compare: Compare | None) -> tuple[Check, ...]:
    block = parent.mapping(key)
    return tuple(_check(_block(block, name), name, compare) for name in block) if block else ()


def _check(block: Authored, name: str, compare: Compare | None) -> Check:
    signal = _signal(block, "signal")
    text = block.text("says", "")
    if "is" in block:
        block.only(("signal", "is", "segment", "says"))
        parsed = parse_comparison(block.text("is"))
        if parsed is None:
            raise block.fail(f"{block.text('is')!r}: expected '<= x' or '>= x'", "is")
        where = cast(Any, block.choice("segment", ("baseline", "current", "both"), "current"))
        check = Check(name, signal, "is", *parsed, where=where, text=text, unit=signals.find(signal).unit)
    else:
        kind, bound = _change(block, signal)
        check = Check(name, signal, kind, bound=bound, text=text)
    if check.compares and compare is None:
        raise block.fail("this check needs a baseline, and the playbook has no 'compare'")
    return check


def _change(block: Authored, signal: str) -> tuple[Kind, Bound]:
    if "change" not in block:
        raise block.fail("expected 'is' or 'change'")
    kind = cast(Kind, block.choice("change", CHANGES))
    key = BOUND_KEY[kind]
    block.only(("signal", "change", key, "says"), (key,))
    bound = parse_bound(block.text(key))
    if bound is None:
        raise block.fail(f"{block.text(key)!r}: expected a bound such as 0.2, 15% or 5pp", key)
    if bound.points and signals.describe(signal)[0] != SHARE:
        raise block.fail(f"points (pp) are for shares, and {signal} is in {signals.describe(signal)[0]}", key)
    return kind, bound


def _signal(block: Authored, key: str) -> str:
    name = block.text(key)
    if not signals.known(name):
        raise block.fail(f"no signal {name!r}{nearest(name, signals.names())}", key)
    return name


def _block(parent: Authored, key: str) -> Authored:
    found = parent.mapping(key)
    if found is None:
        raise parent.fail(f"key {key!r} is missing")
    return found
