"""A diagnosis as text, Markdown or JSON; one format a file, found by file name."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any, cast

from kvscope.discovery import module_names
from kvscope.errors import UsageError, nearest
from kvscope.finding import Diagnosis

Render = Callable[..., str]


@cache
def names() -> tuple[str, ...]:
    """Return the formats there are."""
    return module_names(__path__)


def get(name: str) -> Render:
    """Return a format's ``render(diagnosis, **options) -> str``; the text ends without a line end. UsageError."""
    if name not in names():
        raise UsageError(f"no report format {name!r}; expected one of {', '.join(names())}{nearest(name, names())}")
    return cast(Render, importlib.import_module(f"{__name__}.{name}").render)


def render(name: str, diagnosis: Diagnosis, **options: Any) -> str:
    """Write a diagnosis in one format."""
    return get(name)(diagnosis, **options)
