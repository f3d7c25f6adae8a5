"""YAML as somebody wrote it: mappings that remember their lines, so that every mistake names its place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import yaml

from kvscope.errors import UsageError, nearest
from probes import border

T = TypeVar("T")
MOST_BYTES = 1 << 20
"""Largest playbook; the largest that ships has ten thousand."""
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Authored:
    """A mapping of a file; every read checks its type and raises UsageError with file, line and key."""

    def __init__(self, path: Path, node: yaml.MappingNode, where: str = "") -> None:
        self.path = path
        self.where = where
        self.line = node.start_mark.line + 1
        self._items: dict[str, tuple[int, yaml.Node]] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise self.fail(f"a {_kind(key)} stands where a key was expected", line=line)
            if key.value in self._items:
                self.fail(f"{key.value!r} is there twice (first at line {self._items[key.value][0]})", line=line)
            self._items[key.value] = (line, value)

    def fail(self, problem: str, key: str = "", line: int = 0) -> UsageError:
        """Raise UsageError: file, line, key and the problem. (The return type lets callers write ``raise``.)"""
        at = line or (self._items[key][0] if key in self._items else self.line)
        place = ".".join(part for part in (self.where, key) if part)
        raise UsageError(f"{self.path}:{at}: {place + ': ' if place else ''}{problem}")

    def only(self, allowed: Iterable[str], required: Iterable[str] = ()) -> None:
        """Reject unknown keys with the nearest valid one, and name a required key that is not there."""
        valid = tuple(allowed)
        for key in self._items:
            if key not in valid:
                raise self.fail(f"unknown key{nearest(key, valid)}; expected one of: {', '.join(valid)}", key)
        for key in required:
            if key not in self._items:
                raise self.fail(f"key {key!r} is missing")

    def __contains__(self, key: str) -> bool:
        return key in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def text(self, key: str, default: str | None = None) -> str:
        """Return a scalar as text."""
        if key not in self._items:
            if default is None:
                raise self.fail(f"key {key!r} is missing")
            return default
        node = self._items[key][1]
        if not isinstance(node, yaml.ScalarNode):
            raise self.fail(f"expected text, found a {_kind(node)}", key)
        return border.printable(" ".join(str(node.value).split()), MOST_BYTES)

    def choice(self, key: str, valid: Iterable[str], default: str | None = None) -> str:
        """Return a scalar that must be one of ``valid``."""
        value, allowed = self.text(key, default), tuple(valid)
        if value not in allowed:
            raise self.fail(f"{value!r}{nearest(value, allowed)}; expected one of: {', '.join(allowed)}", key)
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of scalars (one scalar counts as a list of one; absent is empty)."""
        if key not in self._items:
            return ()
        node = self._items[key][1]
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        if not all(isinstance(one, yaml.ScalarNode) for one in nodes):
            raise self.fail("expected a list of texts", key)
        return tuple(border.printable(" ".join(str(one.value).split()), MOST_BYTES) for one in nodes)

    def mapping(self, key: str) -> Authored | None:
        """Return a mapping beneath this one, or None when absent."""
        if key not in self._items:
            return None
        line, node = self._items[key]
        if not isinstance(node, yaml.MappingNode):
            raise self.fail(f"expected keys and values, found a {_kind(node)}", key, line)
        return Authored(self.path, node, f"{self.where}.{key}".strip("."))

    def texts_or_mappings(self, key: str, of_text: Callable[[str], T]) -> tuple[T | Authored, ...]:
        """Return a list in which each member is a scalar, given to ``of_text``, or a mapping; absent is empty."""
        if key not in self._items:
            return ()
        node = self._items[key][1]
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        found: list[T | Authored] = []
        for i, one in enumerate(nodes):
            if isinstance(one, yaml.MappingNode):
                found.append(Authored(self.path, one, f"{self.where}.{key}[{i}]".strip(".")))
            elif isinstance(one, yaml.ScalarNode):
                found.append(of_text(" ".join(str(one.value).split())))
            else:
                raise self.fail("expected texts or keys and values", key)
        return tuple(found)

    def mappings(self, key: str) -> tuple[Authored, ...]:
        """Return a list of mappings (one mapping counts as a list of one)."""
        if key not in self._items:
            raise self.fail(f"key {key!r} is missing")
        node = self._items[key][1]
        if isinstance(node, yaml.MappingNode):
            return (Authored(self.path, node, f"{self.where}.{key}".strip(".")),)
        nodes = node.value if isinstance(node, yaml.SequenceNode) else []
        if not nodes or not all(isinstance(one, yaml.MappingNode) for one in nodes):
            raise self.fail("expected a check or a list of checks", key)
        return tuple(Authored(self.path, one, f"{self.where}.{key}[{i}]") for i, one in enumerate(nodes))


def read(path: Path) -> Authored:
    """Parse a file whose top level is a mapping; UsageError says where it is not YAML."""
    try:
        text = border.read_file(path, MOST_BYTES).decode("utf-8")
        _shallow(path, text)
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UsageError(f"{path}:{line}: not YAML: {border.printable(error.problem)}") from None
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UsageError(f"{path}: cannot be read: {border.printable(error)}") from None
    if not isinstance(node, yaml.MappingNode):
        raise UsageError(f"{path}:1: expected keys and values at the top level")
    return Authored(path, node)


def _shallow(path: Path, text: str) -> None:
    """UsageError where things stand in each other more deeply than in any playbook.

    Composing descends into itself, and some versions of the library end the process instead of raising an error; the
    events of a file come one after another, however deep it is.
    """
    deepest = (
        text.count("[")
        + text.count("{")
        + max((len(line) - len(line.lstrip(" -?")) for line in text.split("\n")), default=0)
    )
    if deepest <= border.MOST_DEPTH:
        return
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > border.MOST_DEPTH:
            line = event.start_mark.line + 1 if event.start_mark else 1
            raise UsageError(f"{path}:{line}: nested too deeply, expected at most {border.MOST_DEPTH}")


def _kind(node: yaml.Node) -> str:
    return (
        "mapping" if isinstance(node, yaml.MappingNode) else "list" if isinstance(node, yaml.SequenceNode) else "text"
    )
