"""Benchmarks: one a file, found by its name. Its docstring is its help, ``configure`` adds its options.

``measure(options)`` returns a `kvscope.result.result.Result`. No torch here: what needs the built-in engine
starts it as a child process.
"""

from __future__ import annotations

from kvscope.discovery import module_names


def names() -> tuple[str, ...]:
    """Return the benchmarks there are; imports none of them."""
    return module_names(__path__)
