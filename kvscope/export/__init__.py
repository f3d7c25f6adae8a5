"""Playbooks for other tools; one format a file, found by file name: ``render(playbooks, engine) -> str``."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import cast

from kvscope.discovery import module_names
from kvscope.playbook_schema import Playbook

Render = Callable[[Sequence[Playbook], str], str]


@cache
def names() -> tuple[str, ...]:
    """Return the formats there are."""
    return module_names(__path__)


def render(name: str, playbooks: Sequence[Playbook], engine: str) -> str:
    """Write playbooks in one format, in the names that ``engine`` uses on its page."""
    module = importlib.import_module(f"{__name__}.{name}")
    return cast(Render, module.render)(playbooks, engine)
