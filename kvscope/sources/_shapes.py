"""Splitting the first sight of a series quickly: a page has few shapes (a name with its label names) and many series.

A head without a backslash holds quotes only around label values, so cutting it at the quotes leaves what all series of
its shape share: ``name{a="1",b="2"`` is cut into ``name{a=``, ``1``, ``,b=``, ``2`` and nothing.
"""

from __future__ import annotations

import re

from probes.sample import Labels

_MOST = 20_000
"""Shapes remembered at most."""

_FIRST = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\{([a-zA-Z_][\w.:]*)=")
_NEXT = re.compile(r",([a-zA-Z_][\w.:]*)=")

Shape = tuple[str, tuple[tuple[str, int], ...]]
"""The metric's name, and of each label, in sorted order, its name and which cut holds its value."""


class Shapes:
    """Knows the shapes of one target's pages."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], Shape | None] = {}

    def split(self, head: str) -> tuple[str, Labels] | None:
        """Return name and sorted labels of ``name{labels``; None when it is anything but the plain spelling."""
        if "\\" in head:
            return None
        cuts = head.split('"')
        key = tuple(cuts[::2])
        try:
            shape = self._known[key]
        except KeyError:
            shape = self._learn(key, len(cuts))
        if shape is None:
            return None
        return shape[0], tuple([(label, cuts[index]) for label, index in shape[1]])

    def _learn(self, key: tuple[str, ...], cuts: int) -> Shape | None:
        if len(self._known) >= _MOST:
            self._known.clear()
        found = self._known[key] = _shape(key) if cuts % 2 else None
        return found


def _shape(key: tuple[str, ...]) -> Shape | None:
    first = _FIRST.fullmatch(key[0])
    following = [_NEXT.fullmatch(text) for text in key[1:-1]]
    if first is None or key[-1] not in ("", ",") or not all(following):
        return None
    names = [first[2], *(matched[1] for matched in following if matched)]
    if len(set(names)) < len(names):
        return None
    return first[1], tuple(sorted((name, 2 * index + 1) for index, name in enumerate(names)))
