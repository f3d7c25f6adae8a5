"""Reading a Prometheus or OpenMetrics text page, fast when the same series come again and again.

A page repeats its series at every scrape and only the values move, so the text in front of a value (``name{labels``)
is looked up in a memo and parsed once. What a series means to the caller is decided once too: ``resolve`` is asked at
the first sight of a series, and None makes every later line of it free.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from probes.border import Memo, printable
from probes.sample import Labels

T = TypeVar("T")

_MEMO_BYTES = 48 << 20
"""What the texts of known series may weigh: an engine that invents labels must not grow our memory without end."""
LABEL_CHARS = 1024
"""Longest label value kept: settings are told in labels, some of them whole documents."""
MOST_LINE = 32 << 10
"""Longest line read as a sample. The longest real ones, of settings in labels, have some thousand characters."""

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r'\s*(?:([a-zA-Z_][\w.:]*)|"((?:[^"\\]|\\.)+)")\s*(?:=\s*"((?:[^"\\]|\\.)*)"\s*)?(?:,|(?=\}))')
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n", '"': '"', "\\": "\\"}


@dataclass(slots=True)
class Page(Generic[T]):
    """What a page said: resolved series with their values, the declared types, and the lines that made no sense."""

    rows: list[tuple[T, float]] = field(default_factory=list)
    types: dict[str, str] = field(default_factory=dict)
    bad_lines: int = 0
    first_bad: str = ""


class Parser(Generic[T]):
    """Parses pages of one target. ``resolve(name, labels)`` says what a series is to the caller, None for nothing."""

    def __init__(self, resolve: Callable[[str, Labels], T | None]) -> None:
        self._resolve = resolve
        self._memo: Memo[str, T | None] = Memo(_MEMO_BYTES)
        self._unknown = 0
        self._shapes = Shapes()

    @property
    def remembered(self) -> int:
        """How many series' texts are remembered."""
        return len(self._memo.known)

    def forget(self) -> None:
        """Resolve anew what the next page has."""
        self._memo.clear()

    def parse(self, text: str) -> Page[T]:
        """Read a whole page. Timestamps and exemplars are dropped; a line that makes no sense is counted, not fatal."""
        page: Page[T] = Page()
        self._unknown = 0
        memo, rows = self._memo.known, page.rows
        # Not splitlines(): a label value may hold the other line ends that it knows.
        for line in text.split("\n"):
            if not line or line[0] == "#":
                if line.startswith("# TYPE "):
                    _declare(line, page.types)
                continue
            head, brace, tail = line.rpartition("} ")
            if not brace:
                head, _, tail = line.partition(" ")
                if "{" in head:
                    # Labels without an end, or no space after them: in front of the space stands no series' own text.
                    head, tail = line, ""
            try:
                found = memo[head]
                if found is not None:
                    rows.append((found, float(tail)))
            except (KeyError, ValueError):
                self._parse_slowly(line, head, tail, page)
        if 2 * self._unknown > len(rows):
            # There is no room for most of this page: what is remembered is of series that are gone.
            self._memo.clear()
        return page

    def _remember(self, head: str, found: T | None) -> None:
        self._unknown += not self._memo.offer(head, found, len(head))

    def _parse_slowly(self, line: str, head: str, tail: str, page: Page[T]) -> None:
        """Parse a line whose series is new, or whose tail is more than a value (timestamp, exemplar)."""
        if len(line) > MOST_LINE:
            _bad(page, f"{line[:40]}… ({len(line)} characters)")
            return
        if not line.strip():
            return
        try:
            if head in self._memo.known and "#" not in tail:
                found, value = self._memo.known[head], _value(tail)
            elif (plain := self._shapes.split(head)) is not None and "#" not in tail:
                value = _plain_or(tail)
                found = self._resolve(plain[0], bounded(plain[1]))
                self._remember(head, found)
            else:
                name, labels, rest = split_line(line)
                value = _value(rest)
                found = self._resolve(name, bounded(labels))
                # Only a head that ends where the labels end names the series: an exemplar has braces of its own, and a
                # tab may stand where the space was looked for.
                if "#" not in rest and rest.split() == tail.split():
                    self._remember(head, found)
        except ValueError:
            _bad(page, line[:80])
            return
        if found is not None:
            page.rows.append((found, value))


def _bad(page: Page[T], what: str) -> None:
    page.bad_lines += 1
    page.first_bad = page.first_bad or what


def bounded(labels: Labels) -> Labels:
    """Return labels whose values are printable and of a bounded length."""
    for _, value in labels:
        if not value.isprintable() or len(value) > LABEL_CHARS:
            return tuple([(name, printable(text, LABEL_CHARS)) for name, text in labels])
    return labels


def split_line(line: str) -> tuple[str, Labels, str]:
    """Return (name, sorted labels, what follows them). ValueError when it is no sample.

    A metric name may stand inside the braces in quotes, as OpenMetrics 2 and Prometheus 3 write names with dots.
    """
    matched = _NAME.match(line)
    name = matched.group() if matched else ""
    rest = line[len(name) :]
    if rest[:1] not in ("{", " ", "\t"):
        raise ValueError("neither labels nor a space after the name")
    rest = rest.lstrip(" \t")
    pairs: list[tuple[str, str]] = []
    if rest.startswith("{"):
        name, pairs, rest = _split_labels(name, rest)
    if not name:
        raise ValueError("no metric name")
    return name, tuple(sorted(pairs)), rest


def _plain_or(tail: str) -> float:
    """Return the value of a tail that nearly always is a value and nothing else."""
    try:
        return float(tail)
    except ValueError:
        return _value(tail)


def _value(rest: str) -> float:
    """Return the value in front of an optional timestamp and an optional exemplar."""
    fields = rest.partition("#")[0].split()
    if not 1 <= len(fields) <= 2:
        raise ValueError("expected a value and perhaps a timestamp")
    values = [float(text) for text in fields]
    return values[0]


def series_names(text: str) -> list[str]:
    """Return the names of the samples on a page, each once, in order; lines that are no samples are skipped."""
    names: dict[str, None] = {}
    for line in text.split("\n"):
        # Of many series of one name only the first is looked at closely.
        if not line or line[0] in "# <" or len(line) > MOST_LINE:
            continue
        if line.partition("{")[0].partition(" ")[0] not in names:
            with contextlib.suppress(ValueError):
                name, _, rest = split_line(line)
                _value(rest)
                names[name] = None
    return list(names)


def _split_labels(name: str, text: str) -> tuple[str, list[tuple[str, str]], str]:
    pairs = []
    at = 1
    while not text.startswith("}", at):
        matched = _LABEL.match(text, at)
        if matched is None:
            at += len(text[at:]) - len(text[at:].lstrip(" \t"))
            if text.startswith("}", at):
                break
            raise ValueError("labels cannot be read")
        bare, quoted, value = matched.groups()
        if value is not None:
            pairs.append((bare or _unescape(quoted), _unescape(value)))
        elif quoted and not name:
            name = _unescape(quoted)
        else:
            raise ValueError("a label has no value")
        at = matched.end()
    return name, pairs, text[at + 1 :]


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda found: _ESCAPED.get(found.group(1), found.group()), text)


def _declare(line: str, types: dict[str, str]) -> None:
    fields = line.split(None, 3)
    if len(fields) == 4:
        types[fields[2]] = fields[3].strip()


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
