"""Name maps, one engine a file, found by file name."""

from __future__ import annotations

import importlib
from collections.abc import Collection
from functools import cache
from typing import cast

from kvscope.discovery import module_names
from kvscope.sources.mapping import EngineMap, Entry

_ROLES = ("engine", "router", "cache", "machine")


@cache
def names() -> tuple[str, ...]:
    """Return the engines whose pages can be read."""
    return module_names(__path__)


@cache
def load(name: str) -> EngineMap:
    """Return one engine's map."""
    return cast(EngineMap, importlib.import_module(f"{__name__}.{name}"))


def entries(engine: str) -> tuple[Entry, ...]:
    """Return every name of one engine's pages; of all engines where nobody of that name is known."""
    # A router borrows names of the engines behind it: where nobody says whose they are, they are an engine's.
    known = sorted([load(name) for name in names()], key=lambda one: one.ENGINE == "router")
    mine = [one for one in known if engine == one.ENGINE]
    return tuple(entry for one in mine or known for entry in one.MAP)


@cache
def _spellings() -> dict[str, str]:
    """Spelling → the name it stands for: relays turn ``vllm:x`` into ``vllm_x``, Ray Serve into ``ray_vllm_x``; an
    exporter may be told to write a prefix (``PREFIXES`` of its map)."""
    found: dict[str, str] = {}
    for engine in map(load, names()):
        for entry in engine.MAP:
            for part in ("", "_bucket", "_sum", "_count") if entry.kind == "histogram" else ("",):
                name = entry.name + part
                found |= {prefix + name: name for prefix in getattr(engine, "PREFIXES", ())}
                if ":" in name:
                    plain = name.replace(":", "_")
                    found |= {plain: name, f"ray_{plain}": name}
    return found


def canonical(sample_name: str) -> str:
    """Return a sample's name as its engine spells it."""
    return _spellings().get(sample_name, sample_name)


def detect_all(sample_names: Collection[str]) -> tuple[EngineMap, ...]:
    """Return the maps of everything that wrote on a page: engines first, then routers, KV stores and exporters."""
    sample_names = {canonical(name) for name in sample_names}
    found = [engine for engine in map(load, names()) if engine.detect(sample_names)]
    return tuple(sorted(found, key=lambda engine: _ROLES.index(engine.ROLE)))


def detect(sample_names: Collection[str]) -> EngineMap | None:
    """Return the map of the engine (or router, or KV store) that a page with these sample names belongs to, or None."""
    found = detect_all(sample_names)
    return found[0] if found and found[0].ROLE != "machine" else None


def expected() -> str:
    """Return what a page must hold to be known, for an error message."""
    engines = [load(name) for name in names()]
    return "; ".join(f"{engine.ENGINE}: {engine.EXPECTS}" for engine in engines if engine.ROLE != "machine")


def version_range(engine: EngineMap, sample_names: Collection[str]) -> str:
    """Return the versions whose names these are, such as ``0.15-0.31`` or ``0.33+``; empty where names do not tell."""
    spelt = {canonical(name) for name in sample_names}
    present = [entry for entry in engine.MAP if _shown(entry.name, entry.kind) in spelt]
    low = max((entry.since for entry in present if entry.since), key=_order, default="")
    high = min((entry.until for entry in present if entry.until), key=_order, default="")
    if high:
        if not low or _order(low) > _order(high):
            return f"up to {high}"
        return low if low == high else f"{low}-{high}"
    return f"{low}+" if low else ""


def _shown(name: str, kind: str) -> str:
    return f"{name}_count" if kind == "histogram" else name


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
