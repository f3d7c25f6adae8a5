"""Name maps, one engine a file, found by file name."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Collection
from functools import cache
from typing import cast

from kvscope.sources.maps._base import EngineMap


@cache
def names() -> tuple[str, ...]:
    """Return the engines whose pages can be read."""
    return tuple(sorted(info.name for info in pkgutil.iter_modules(__path__) if not info.name.startswith("_")))


@cache
def load(name: str) -> EngineMap:
    """Return one engine's map."""
    return cast(EngineMap, importlib.import_module(f"{__name__}.{name}"))


def detect(sample_names: Collection[str]) -> EngineMap | None:
    """Return the map of the engine that a page with these sample names belongs to, or None."""
    return next((found for found in map(load, names()) if found.detect(sample_names)), None)


def expected() -> str:
    """Return what a page must hold to be known, for an error message."""
    return " or ".join(load(name).EXPECTS for name in names())
