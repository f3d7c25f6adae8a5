"""The playbook format as a JSON Schema, built from the very lists that the loader checks against.

What a schema cannot say (a look at a playbook that exists, a baseline where a check compares) only the loader checks.
"""

from __future__ import annotations

from typing import Any, get_args

from kvscope import advice, playbook, signals
from kvscope.checks import BOUND_KEY, CHANGES
from kvscope.finding import VERDICT_ORDER
from kvscope.playbook_schema import SCHEMA, GainKind, Status, Triage

Schema = dict[str, Any]
_TEXT: Schema = {"type": ["string", "number", "boolean"]}
_TEXTS: Schema = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]}
_BOUND: Schema = {"type": ["string", "number"], "pattern": r"^\s*\d+(\.\d+)?\s*(%|pp)?\s*$"}


def build() -> Schema:
    """Return the schema of one playbook file."""
    signal: Schema = {"enum": signals.names()}
    check = {"anyOf": [_level(signal), *(_change(signal, one) for one in CHANGES)]}
    checks: Schema = {"type": "object", "additionalProperties": {"$ref": "#/$defs/check"}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "kvscope playbook",
        "$defs": {"check": check},
        **_object(
            playbook.REQUIRED,
            schema={"const": SCHEMA},
            id={"type": "string"},
            title=_TEXT,
            status={"enum": list(get_args(Status))},
            triage={"enum": list(get_args(Triage))},
            compare=_object((), baseline=_TEXT, current=_TEXT, same=_TEXTS, optional={"type": "boolean"}),
            symptom={**checks, "minProperties": 1},
            cause=_object(("says", "slug"), says=_TEXT, slug={"pattern": "^[a-z0-9_]+$"}, checks=checks, any=checks),
            rivals={"type": "object", "additionalProperties": _rival()},
            gain=_object(
                ("kind", "signal", "of"),
                kind={"enum": list(get_args(GainKind))},
                signal=signal,
                of=_TEXT,
                remaining=_BOUND,
                growth_limit={"pattern": r"^x?[0-9.]+$"},
                **dict.fromkeys(("measured_by_fall", "measured_by_rise", *playbook.GAIN_SIGNALS), signal),
            ),
            experiment=_object(
                ("change", "predict"),
                change=_TEXT,
                hold=_TEXTS,
                run=_TEXT,
                set={"type": "object", "additionalProperties": _TEXT},
                predict=checks,
            ),
            fix={"anyOf": [_TEXT, {"type": "array", "items": {"anyOf": [_TEXT, _fix()]}}]},
            tests=_object((), **dict.fromkeys(VERDICT_ORDER, _TEXTS)),
            notes=_TEXTS,
            thresholds={"type": "object", "additionalProperties": _provenance()},
        ),
    }


def _object(required: tuple[str, ...], **properties: Schema) -> Schema:
    found: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**found, "required": list(required)} if required else found


def _level(signal: Schema) -> Schema:
    comparison = {"type": "string", "pattern": r"^\s*(<=|>=)\s*-?\d+(\.\d+)?\s*(%)?\s*$"}
    where = {"enum": ["baseline", "current", "both"]}
    return _object(("signal", "is"), signal=signal, **{"is": comparison}, segment=where, says=_TEXT)


def _change(signal: Schema, kind: str) -> Schema:
    key = BOUND_KEY[kind]
    return _object(("signal", "change", key), signal=signal, change={"const": kind}, **{key: _BOUND}, says=_TEXT)


def _rival() -> Schema:
    one: Schema = {"$ref": "#/$defs/check"}
    several = {"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]}
    return _object(("says", "excluded_when"), says=_TEXT, excluded_when=several, look=_TEXT)


def _fix() -> Schema:
    return _object(("do",), **dict.fromkeys(("do", "costs", "undo"), _TEXT), **dict.fromkeys(advice.ENGINES, _TEXTS))


def _provenance() -> Schema:
    return _object(("source", "says"), source={"enum": list(playbook.SOURCES)}, says=_TEXT)
