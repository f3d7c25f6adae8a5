"""What one layer keeps of a request: one attention kind a file, found by its name.

A file has ``held(config, layer, context, widths) -> Held`` and ``SAYS``, one line about the kind.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import cast

from kvscope.discovery import module_names
from kvscope.plan.config import ModelConfig
from kvscope.plan.dtypes import Widths
from kvscope.plan.kinds._base import Held

HeldBy = Callable[[ModelConfig, int, int, Widths], Held]


def names() -> tuple[str, ...]:
    """Return the kinds there are."""
    return module_names(__path__)


def get(name: str) -> HeldBy:
    """Return a kind's formula."""
    return cast(HeldBy, importlib.import_module(f"{__name__}.{name}").held)


def says(name: str) -> str:
    """Return what a kind keeps, in one line."""
    return str(importlib.import_module(f"{__name__}.{name}").SAYS)
