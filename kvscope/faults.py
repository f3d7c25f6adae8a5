"""Named faults of the built-in engine: knobs and load that bring about one known cause, and what proves it.

One TOML file each in the engine's folder `faults`, found by name and read as data: nothing of the engine is imported.
"""

from __future__ import annotations

import importlib.util
import operator
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvscope.errors import UsageError, nearest

OPERATORS: Mapping[str, Callable[[float, float], bool]] = {">=": operator.ge, "<=": operator.le}
SEVERITIES = ("mild", "clear", "severe")
"""``clear`` is the fault as its file states it; the other two are what its tables of that name change."""
FLAGS = ("pool_mib", "block_tokens")
"""What only a start can set; the engine's flags are spelt with dashes."""
_TABLES = ("engine", "knobs", "load")


@dataclass(frozen=True, slots=True)
class Truth:
    """``counter`` over the run (its growth; a gauge's mean), divided by that of ``per`` if given, holds ``is_``."""

    counter: str
    per: str
    is_: str

    def holds(self, value: float) -> bool:
        """Whether a value is on the fault's side."""
        sign, _, bound = self.is_.partition(" ")
        return OPERATORS[sign](value, float(bound))

    def __str__(self) -> str:
        return f"{self.counter}{' / ' + self.per if self.per else ''} {self.is_}"


@dataclass(frozen=True, slots=True)
class Fault:
    """``slug`` is the cause as playbooks name it, ``fix`` the knobs that end it, ``flags`` what only a start can set.

    ``from_start``: the fault is in the first seconds, which any measurement should leave out.
    """

    name: str
    says: str
    slug: str
    flags: Mapping[str, str]
    knobs: Mapping[str, str]
    truth: tuple[Truth, ...]
    fix: Mapping[str, str]
    from_start: bool = False
    severities: tuple[str, ...] = ("clear",)

    @property
    def options(self) -> tuple[str, ...]:
        """The flags as words of the engine's command line."""
        return tuple(word for name, value in self.flags.items() for word in (f"--{name.replace('_', '-')}", value))


def names() -> tuple[str, ...]:
    """Every fault's name, sorted; none where the engine is not installed."""
    folder = _folder()
    return tuple(sorted(path.stem for path in folder.glob("*.toml"))) if folder else ()


def get(name: str, severity: str = "clear") -> Fault:
    """Read one fault; UsageError names the nearest, or what is wrong in its file or with the severity."""
    folder = _folder()
    if folder is None:
        raise UsageError("faults belong to the built-in engine: pip install 'kvscope[engine]'")
    path = folder / f"{name}.toml"
    if name not in names():
        raise UsageError(f"no fault {name!r}{nearest(name, names())}; there are {', '.join(names())}")
    try:
        data = tomllib.loads(path.read_text())
        if severity not in (known := _severities(data)):
            hint = f"{nearest(severity, known)}; there are {', '.join(known)}"
            raise UsageError(f"{name}: no severity {severity!r}{hint}")
        return _parse(name, _at(data, severity))
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path}: {error!r}, expected a fault") from error


def _severities(data: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(one for one in SEVERITIES if one == "clear" or one in data)


def _at(data: Mapping[str, Any], severity: str) -> dict[str, Any]:
    """The file's data with the tables of a severity laid over those of the same name."""
    changes: Mapping[str, Any] = data.get(severity, {})
    if unknown := set(changes) - set(_TABLES):
        raise ValueError(f"[{severity}] has {', '.join(sorted(unknown))}, expected some of {', '.join(_TABLES)}")
    return {**data, **{table: {**data.get(table, {}), **changes[table]} for table in changes}}


def _parse(name: str, data: dict[str, Any]) -> Fault:
    load = {f"load.{key}": str(value) for key, value in data.get("load", {}).items()}
    flags = {key: str(value) for key, value in data.get("engine", {}).items()}
    if unknown := set(flags) - set(FLAGS):
        raise ValueError(f"[engine] has {', '.join(sorted(unknown))}, expected some of {', '.join(FLAGS)}")
    knobs = {key: str(value) for key, value in data.get("knobs", {}).items()}
    truth = tuple(Truth(one["counter"], one.get("per", ""), one["is"]) for one in data["truth"])
    fix = {key: str(value) for key, value in data.get("fix", {}).items()}
    return Fault(
        name,
        str(data["says"]),
        str(data["slug"]),
        flags,
        {**knobs, **load},
        truth,
        fix,
        data.get("from_start", False),
        _severities(data),
    )


def _folder() -> Path | None:
    # Looked up, not imported: the observer must not load the engine.
    spec = importlib.util.find_spec("engine")
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    return Path(places[0]) / "faults" if places else None
