"""What every source is: something that turns an engine's words into canonical samples."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from probes.border import SAID_CHARS, TEXT_CHARS, printable
from probes.sample import Sample

# What sources say is text of others: it becomes printable here, whichever source forgot to ask for that.


def _printable_tags(tags: dict[str, str]) -> dict[str, str]:
    return {printable(name, TEXT_CHARS): printable(value, TEXT_CHARS) for name, value in tags.items()}


@dataclass(frozen=True, slots=True)
class Description:
    """Who is behind a source: kind (``ring``, ``vllm``…), where, and tags every segment of it carries.

    ``heard_s``: when it was last heard of (epoch seconds), where that is known better than from its newest sample.
    ``dated``: whether its times are what it says; else they are assumed, and only their order and spacing mean
    something.
    """

    kind: str
    target: str
    engine: str = ""
    version: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    alive: bool = True
    note: str = ""
    heard_s: float | None = None
    dated: bool = True
    config: str = ""
    """The model's config.json as JSON, where a recording keeps it."""

    def __post_init__(self) -> None:
        for name in ("engine", "version", "note"):
            object.__setattr__(self, name, printable(getattr(self, name), SAID_CHARS))
        # A list of a thousand addresses is a target too.
        object.__setattr__(self, "target", printable(self.target, 1 << 16))
        object.__setattr__(self, "tags", _printable_tags(self.tags))


@dataclass(frozen=True, slots=True)
class Mark:
    """A segment starts at ``t`` (seconds since the epoch) because somebody named it or something was reconfigured."""

    name: str
    t: float
    tags: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", printable(self.name, TEXT_CHARS))
        object.__setattr__(self, "tags", _printable_tags(self.tags))


@dataclass(frozen=True, slots=True)
class Poll:
    """What one poll brought: samples in time order, marks, and lines a person should read (gaps, resets, death)."""

    samples: list[Sample]
    marks: tuple[Mark, ...] = ()
    notices: tuple[str, ...] = ()
    ended: bool = False
    more: bool = False
    """What was held already comes in slices, and this is not the last: poll again before anything is made of it."""

    silent: str = ""
    """Why nothing comes any more from something that nobody ended; empty while it answers."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "notices", tuple([printable(notice) for notice in self.notices]))


class Source(Protocol):
    """One thing kvscope reads. ``poll`` returns what is new since the last poll and never blocks for long."""

    def describe(self) -> Description: ...

    def poll(self) -> Poll: ...

    def close(self) -> None: ...
