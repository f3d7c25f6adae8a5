"""Benchmarks: one a file, found by its name. Its docstring is its help, ``configure`` adds its options.

``measure(options)`` returns a `kvscope.bench.result.result.Result`. No torch here: what needs the built-in engine
starts it as a child process.
"""

from __future__ import annotations

import pkgutil


def names() -> tuple[str, ...]:
    """Return the benchmarks there are; imports none of them."""
    return tuple(
        sorted(info.name for info in pkgutil.iter_modules(__path__) if not info.ispkg and not info.name.startswith("_"))
    )
