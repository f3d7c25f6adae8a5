"""What every source is: something that turns an engine's words into canonical samples."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from probes.sample import Sample


@dataclass(frozen=True, slots=True)
class Description:
    """Who is behind a source: kind (``ring``, ``vllm``…), where, and tags every segment of it carries."""

    kind: str
    target: str
    engine: str = ""
    version: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    alive: bool = True
    note: str = ""


@dataclass(frozen=True, slots=True)
class Mark:
    """A segment starts at ``t`` (seconds since the epoch) because somebody named it or something was reconfigured."""

    name: str
    t: float
    tags: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Poll:
    """What one poll brought: samples in time order, marks, and lines a person should read (gaps, resets, death)."""

    samples: list[Sample]
    marks: tuple[Mark, ...] = ()
    notices: tuple[str, ...] = ()
    ended: bool = False
    more: bool = False
    """What was held already comes in slices, and this is not the last: poll again before anything is made of it."""


class Source(Protocol):
    """One thing kvscope reads. ``poll`` returns what is new since the last poll and never blocks for long."""

    def describe(self) -> Description: ...

    def poll(self) -> Poll: ...

    def close(self) -> None: ...
