"""A diagnosis as text, Markdown or JSON; one format a file, found by file name."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import Any

from kvscope.errors import UsageError, nearest
from kvscope.finding import Diagnosis


@cache
def names() -> tuple[str, ...]:
    """Return the formats there are."""
    return tuple(sorted(info.name for info in pkgutil.iter_modules(__path__) if not info.name.startswith("_")))


def render(name: str, diagnosis: Diagnosis, **options: Any) -> str:
    """Write a diagnosis in one format; every format takes ``show_silent`` and ``checked`` (ids of all playbooks)."""
    if name not in names():
        raise UsageError(f"no report format {name!r}; expected one of {', '.join(names())}{nearest(name, names())}")
    module = importlib.import_module(f"{__name__}.{name}")
    return str(module.render(diagnosis, **options))
