"""A rule of a log: which lines it reads, and what they mean, as data.

A line belongs to a rule when it holds the rule's ``needle`` (literal text: that is how lines are found in large files)
and its pattern matches. What it gives is listed as takes, or computed by ``read`` where groups hang together.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from probes.sample import Labels, labels_of

Kind = Literal["gauge", "rate", "grow", "each", "setting", "word", "tag", "who"]
"""gauge: the state at this time. rate: per second since the line of its kind before. grow: this much more was counted.
each: one value of one request. setting: a number that was configured. word: an option in the engine's own spelling.
tag: what is speaking (version, model). who: which of several engines in one log."""

Memory = dict[str, Any]
"""What a rule wants to remember of one speaker between lines; small, and never of a prompt."""


class Give(NamedTuple):
    """One thing a line said."""

    kind: Kind
    name: str
    value: float = 0.0
    labels: Labels = ()
    text: str = ""


@dataclass(frozen=True, slots=True)
class Take:
    """One group of a pattern, and the metric (or option) it is."""

    group: str
    kind: Kind
    name: str
    scale: float = 1.0
    labels: Labels = ()

    def of(self, matched: re.Match[str]) -> Give | None:
        """Return what the group said; None where it is absent or no finite number."""
        text = matched[self.group]
        if text is None:
            return None
        if self.kind in ("word", "tag", "who"):
            return Give(self.kind, self.name, 0.0, (), text)
        value = number(text)
        return None if value is None else Give(self.kind, self.name, value * self.scale, self.labels)


Read = Callable[[re.Match[str], Memory], Iterable[Give]]


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of line. ``where`` is the version and source file its format was read in.

    ``stat``: the line comes again and again and may be thinned in a large log. ``every_s``: the engine's own interval
    between two such lines, for the first of them.
    """

    needle: str
    pattern: str
    where: str
    takes: tuple[Take, ...] = ()
    gives: tuple[Give, ...] = ()
    read: Read | None = None
    stat: bool = False
    every_s: float = 0.0
    common: bool = False
    """Other programs write such lines too: it says nothing of whose log this is."""
    says: str = ""
    """For an event: what a person should read, once."""
    regex: re.Pattern[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "regex", re.compile(self.pattern))

    @property
    def repeats(self) -> bool:
        """Whether some lines of this kind may stand for others: settings are said once, and every one is read."""
        once_only = any(take.kind in ("setting", "word", "tag") for take in self.takes)
        return self.stat or (self.read is None and not once_only)

    def of(self, message: str, memory: Memory) -> list[Give] | None:
        """Return what a line says; None when it is not of this kind."""
        matched = self.regex.search(message)
        if matched is None:
            return None
        found = [give for take in self.takes if (give := take.of(matched)) is not None]
        found += self.gives
        if self.read is not None:
            found += self.read(matched, memory)
        return found


def number(text: str) -> float | None:
    """Return a log's number (``1,489,792``, ``0.35``); None when it is none, or not finite."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def gauge(group: str, metric: str, scale: float = 1.0, **labels: str) -> Take:
    """A state."""
    return Take(group, "gauge", metric, scale, labels_of(**labels))


def rate(group: str, metric: str, scale: float = 1.0) -> Take:
    """A counter told as its rate since the line of the same kind before."""
    return Take(group, "rate", metric, scale)


def grow(group: str, metric: str, scale: float = 1.0, **labels: str) -> Take:
    """A counter told as its increase."""
    return Take(group, "grow", metric, scale, labels_of(**labels))


def each(group: str, metric: str, scale: float = 1.0) -> Take:
    """One value of one request."""
    return Take(group, "each", metric, scale)


def setting(group: str, metric: str, scale: float = 1.0) -> Take:
    """A number that was configured or came out at the start."""
    return Take(group, "setting", metric, scale)


def word(group: str, option: str) -> Take:
    """An option in the engine's own spelling; what it means stands in ``kvscope.sources.settings``."""
    return Take(group, "word", option)


def tag(group: str, name: str) -> Take:
    """Who is speaking."""
    return Take(group, "tag", name)


def who(group: str) -> Take:
    """Which of several engines that write one log."""
    return Take(group, "who", "")


def once(metric: str, **labels: str) -> Give:
    """One more event."""
    return Give("grow", metric, 1.0, labels_of(**labels))


_PAIR = re.compile(r"([A-Za-z_][\w.]*)=('[^']*'|\"[^\"]*\"|\[[^\]]*\]|\{[^{}]*\}|[^,\s)]+)")
_QUOTED = re.compile(r"'([A-Za-z_]\w*)': ('[^']*'|\"[^\"]*\"|\[[^\]]*\]|<[^>]*>|[^,}\s]+)")
_MOST_PAIRS = 2000


def options(text: str) -> Iterator[Give]:
    """Yield each ``name=value`` of an engine's own account of its arguments, and each ``'name': value`` of a dict."""
    for pattern in (_PAIR, _QUOTED):
        for index, (name, value) in enumerate(pattern.findall(text)):
            if index >= _MOST_PAIRS:
                break
            yield Give("word", name, 0.0, (), value.strip("'\""))
