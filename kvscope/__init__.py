"""kvscope: why a smaller KV cache did not make the service faster."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

BUNDLED = Path(__file__).parent / "_bundled"
"""Where a wheel has `engine` and `probes`. A checkout has them beside this package, and no such folder."""
_OURS = ("engine", "probes")


class _Bundled:
    """Finds `engine` and `probes` in the wheel's own folder, whoever else has packages of these names."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        """Return where a top-level package of ours is; None for everything else."""
        return PathFinder.find_spec(name, [str(BUNDLED)]) if name in _OURS else None


def _claim() -> None:
    """Make `engine` and `probes` those of this distribution. ImportError where another's were imported before."""
    if BUNDLED.is_dir():
        sys.meta_path.insert(0, _Bundled())
    place = BUNDLED if BUNDLED.is_dir() else BUNDLED.parent.parent
    for name in _OURS:
        there = getattr(sys.modules.get(name), "__file__", None)
        if there and Path(there).resolve().parent != (place / name).resolve():
            raise ImportError(f"{there}: another package named {name!r} is loaded; import kvscope before it")


_claim()
