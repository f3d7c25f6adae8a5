"""A diagnosis as text, Markdown or JSON; one format a file, found by file name."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from functools import cache
from typing import Any, cast

from kvscope.discovery import module_names
from kvscope.errors import UsageError, nearest
from kvscope.finding import Diagnosis
from probes.border import lines_printable

Render = Callable[..., str]
_COLOUR = re.compile(r"(\x1b\[[0-9;]{0,16}m)")


@cache
def names() -> tuple[str, ...]:
    """Return the formats there are."""
    return module_names(__path__)


def get(name: str) -> Render:
    """Return a format's ``render(diagnosis, **options) -> str``; the text ends without a line end. UsageError."""
    if name not in names():
        raise UsageError(f"no report format {name!r}; expected one of {', '.join(names())}{nearest(name, names())}")
    written = cast(Render, importlib.import_module(f"{__name__}.{name}").render)

    def guarded(diagnosis: Diagnosis, **options: Any) -> str:
        """Escape what no writer of ours writes: colours are set in text for a terminal, and nothing else anywhere."""
        text = written(diagnosis, **options)
        if not options.get("colour"):
            return lines_printable(text)
        parts = _COLOUR.split(text)
        return "".join(part if index % 2 else lines_printable(part) for index, part in enumerate(parts))

    return guarded


def render(name: str, diagnosis: Diagnosis, **options: Any) -> str:
    """Write a diagnosis in one format."""
    return get(name)(diagnosis, **options)
