"""How an engine keeps the KV of a model: one engine a file, found by its name.

A file has ``NAME`` as people write it, ``VERSION`` (a release or a commit) and ``SOURCE`` (whose rules they are and
where they were read), ``VERSIONS`` (the sets of rules it tells apart, by a release of each; empty: one set for all) and
``layout(ask) -> Layout``.
``find("vllm@0.20")`` picks the rules of the release that a log was written with.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from kvscope.discovery import module_names
from kvscope.errors import UsageError, nearest
from kvscope.plan.engines._base import Ask, Layout, Options, Pool, Split

__all__ = ["Ask", "Layout", "Options", "Pool", "Split", "find", "names"]


def names() -> tuple[str, ...]:
    """Return the engines as people write them."""
    return tuple(module.NAME for module in _modules())


def find(text: str) -> tuple[ModuleType, tuple[int, ...]]:
    """Return an engine's file and the release asked for (its newest one where none is said); UsageError."""
    name, _, release = text.partition("@")
    known = {module.NAME: module for module in _modules()}
    if name not in known:
        raise UsageError(f"--engine {text!r}{nearest(name, known)}; expected one of {', '.join(known)}")
    module = known[name]
    if not module.VERSIONS:
        return module, ()
    return module, _release(text, release or module.VERSION)


def _modules() -> list[ModuleType]:
    return [importlib.import_module(f"{__name__}.{name}") for name in module_names(__path__)]


_LONGEST_NUMBER = 9
"""Digits of a part of a release: what is longer is none, and a page may say anything."""


def _release(text: str, release: str) -> tuple[int, ...]:
    parts = release.removeprefix("v").removeprefix("b").split(".")
    numbers = []
    for part in parts:
        digits = "".join(letter for letter in part if letter.isdecimal())
        if not 0 < len(digits) <= _LONGEST_NUMBER:
            break
        numbers.append(int(digits))
    if not numbers:
        raise UsageError(f"--engine {text!r}: expected a release behind the @, as in vllm@0.20")
    return tuple(numbers)
