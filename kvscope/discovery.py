"""One variant, one file: what stands in a folder, found by file name."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from typing import TypeVar

_Class = TypeVar("_Class")


def module_names(path: Iterable[str]) -> tuple[str, ...]:
    """Return the modules in a package's ``__path__``, sorted; a leading underscore or a folder is no variant.

    Imports none of them.
    """
    found = pkgutil.iter_modules(path)
    return tuple(sorted(one.name for one in found if not one.ispkg and not one.name.startswith("_")))


def classes(package: str, path: Iterable[str], base: type[_Class]) -> list[type[_Class]]:
    """Import every variant of ``package`` and return the subclasses of ``base`` that they define themselves."""
    modules = [importlib.import_module(f"{package}.{name}") for name in module_names(path)]
    return [
        thing
        for module in modules
        for thing in vars(module).values()
        if isinstance(thing, type) and issubclass(thing, base) and thing.__module__ == module.__name__
    ]
