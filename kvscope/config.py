"""Settings and where each one came from: flag, then environment, then kvscope.toml, then default."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from kvscope.errors import UsageError, nearest
from kvscope.finding import FAIL_ON, Verdict
from probes import border

FILE_NAME = "kvscope.toml"
MOST_BYTES = 16 << 10
"""A page of settings. Names joined by dots cost the parser their square: 16 KiB of them take a second."""
ENV_PREFIX = "KVSCOPE_"
THEMES = ("dark", "light")
KEYS = "keys"
"""Table of the file that gives actions of the dashboard other keys: ``mark = "m"``."""


@dataclass(frozen=True, slots=True)
class Settings:
    """``duration`` seconds a live target is watched, ``interval`` seconds between polls, ``playbooks`` a folder.

    ``slo`` are promises about latency, as ``ttft=1s,tpot=50ms``.
    """

    duration: float = 15.0
    interval: float = 1.0
    fail_on: Verdict = "likely"
    slo: str = ""
    format: str = "text"
    playbooks: str = ""
    theme: str = "dark"

    def __post_init__(self) -> None:
        if not 0.1 <= self.interval <= 60.0:
            raise UsageError(f"interval is {self.interval}, expected 0.1 to 60 seconds")
        if not 0.0 < self.duration <= 86_400.0:
            raise UsageError(f"duration is {self.duration}, expected more than 0 and at most 86400 seconds")
        if self.theme not in THEMES:
            raise UsageError(f"theme is {self.theme!r}, expected one of {', '.join(THEMES)}")
        if self.fail_on not in FAIL_ON:
            raise UsageError(f"fail_on is {self.fail_on!r}, expected one of {', '.join(FAIL_ON)}")


@dataclass(frozen=True, slots=True)
class Origin:
    """One setting's value and who set it."""

    name: str
    value: Any
    origin: str


def load(flags: Mapping[str, Any]) -> tuple[Settings, tuple[Origin, ...]]:
    """Merge every layer; UsageError names the file or variable, the key and what was expected."""
    path = config_path()
    from_file = _read(path) if path else {}
    origins = []
    for field in fields(Settings):
        env = ENV_PREFIX + field.name.upper()
        if flags.get(field.name) is not None:
            origins.append(Origin(field.name, flags[field.name], "flag"))
        elif os.environ.get(env):
            origins.append(
                Origin(field.name, _typed(os.environ[env], field.name, f"environment {env}"), f"environment {env}")
            )
        elif field.name in from_file:
            origins.append(Origin(field.name, _typed(from_file[field.name], field.name, str(path)), str(path)))
        else:
            origins.append(Origin(field.name, field.default, "default"))
    return Settings(**{origin.name: origin.value for origin in origins}), tuple(origins)


def config_path() -> Path | None:
    """Return the first kvscope.toml there is: this directory, then the user's configuration directory."""
    user = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "kvscope"
    return next((path for path in (Path(FILE_NAME), user / FILE_NAME) if path.is_file()), None)


def keys() -> dict[str, str]:
    """Return action → key, from the file's table ``[keys]``; a dot in an action's name may stand for a table in it."""
    path = config_path()
    return _flat(_tables(path).get(KEYS, {}), path) if path else {}


def _flat(table: Any, path: Path, stem: str = "") -> dict[str, str]:
    if not isinstance(table, dict):
        raise UsageError(f'{path}: [{KEYS}] is {table!r}, expected a table of ACTION = "KEY"')
    found: dict[str, str] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            found |= _flat(value, path, f"{stem}{name}.")
        elif isinstance(value, str):
            found[stem + name] = value
        else:
            raise UsageError(f"{path}: [{KEYS}] {stem}{name} is {value!r}, expected a key's name in quotes")
    return found


def _read(path: Path) -> dict[str, Any]:
    return {name: value for name, value in _tables(path).items() if name != KEYS}


def _tables(path: Path) -> dict[str, Any]:
    try:
        values: dict[str, Any] = border.shallow(tomllib.loads(border.read_file(path, MOST_BYTES).decode()), str(path))
    except RecursionError:
        raise UsageError(f"{path}: nested too deeply, expected names and values") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {border.printable(getattr(error, 'strerror', None) or error)}") from error
    known = [*(field.name for field in fields(Settings)), KEYS]
    for name in values:
        if name not in known:
            raise UsageError(f"{path}: unknown key {name!r}{nearest(name, known)}; known keys: {', '.join(known)}")
    return values


def _typed(value: Any, name: str, where: str) -> Any:
    kind = {field.name: field.type for field in fields(Settings)}[name]
    try:
        return border.written(value, name) if kind == "float" else border.text(value, name, 4096)
    except ValueError:
        raise UsageError(
            f"{where}: {name} is {border.shown(value)}, expected {'a number' if kind == 'float' else 'text'}"
        ) from None
