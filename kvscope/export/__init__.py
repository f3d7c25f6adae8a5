"""Playbooks for other tools; one format a file, found by file name: ``render(playbooks, engine) -> str``."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from functools import cache
from typing import cast

from kvscope.playbook_schema import Playbook

Render = Callable[[Sequence[Playbook], str], str]


@cache
def names() -> tuple[str, ...]:
    """Return the formats there are."""
    return tuple(sorted(info.name for info in pkgutil.iter_modules(__path__) if not info.name.startswith("_")))


def render(name: str, playbooks: Sequence[Playbook], engine: str) -> str:
    """Write playbooks in one format, in the names that ``engine`` uses on its page."""
    module = importlib.import_module(f"{__name__}.{name}")
    return cast(Render, module.render)(playbooks, engine)
