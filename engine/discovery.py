"""One variant, one file: the modules of a package by file name, imported only when asked for."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from types import ModuleType


def module_names(path: Sequence[str]) -> tuple[str, ...]:
    """Return the module names in a package's ``__path__``, sorted; a leading underscore means that it is no variant."""
    return tuple(sorted(found.name for found in pkgutil.iter_modules(path) if not found.name.startswith("_")))


def load(package: str, name: str) -> ModuleType:
    """Import one variant of ``package`` by its file name."""
    return importlib.import_module(f"{package}.{name}")
