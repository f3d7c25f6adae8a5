"""What a name map is: the words of one engine's page, and the canonical metrics they mean, as data."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from probes.border import finite

PageKind = Literal["counter", "gauge", "histogram", "info"]
Role = Literal["engine", "router", "cache", "machine"]
"""What writes a page: an engine that serves requests, a router before engines, a KV store beside them, or a machine's
exporter, which alone is no target: nothing about serving can be told from it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One name on a page and the canonical metric it means; ``scale`` turns the page's ``unit`` into the catalogue's.

    ``kind`` is the page's kind (a ``gauge`` called info carries labels only). ``combine`` says how the series that
    differ only in labels not in ``keep`` become one: ``sum`` for what adds up over engines, ``mean`` for shares,
    ``max`` for settings. Series that differ only in labels named in ``copies`` say the same (tensor-parallel ranks
    that all count the same tokens): the largest of them is taken before others are added. ``where`` picks series by
    label, ``rename`` keeps labels under other names (theirs, ours), ``labels`` are added to the sample. Entries of one
    metric add up, unless ``unless`` names a family whose
    presence makes this one an old alias of it. ``since`` and ``until`` bracket the versions seen with it
    (empty: not known); ``condition`` is the flag or connector without which it is absent or stays 0.
    """

    name: str
    metric: str
    kind: PageKind
    unit: str = ""
    scale: float = 1.0
    combine: Literal["sum", "mean", "max"] = "sum"
    copies: tuple[str, ...] = ()
    where: tuple[tuple[str, str], ...] = ()
    keep: tuple[str, ...] = ()
    rename: tuple[tuple[str, str], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    unless: str = ""
    since: str = ""
    until: str = ""
    condition: str = ""
    caveat: str = ""


@dataclass(frozen=True, slots=True)
class Derived:
    """What a page says in labels rather than values: canonical values, tags, and lines a person should read."""

    values: dict[str, float] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    notices: tuple[str, ...] = ()


class EngineMap(Protocol):
    """A module of this folder. ``IDENTITY`` turns labels of its series into tags (``model_name`` → ``model``)."""

    ENGINE: str
    ROLE: Role
    EXPECTS: str
    MAP: Sequence[Entry]
    IDENTITY: Mapping[str, str]
    VERSION_PATH: str
    """Where the engine tells its version as JSON ``{"version": …}``, or the empty string."""
    FLAGS: Collection[str]
    """Command line flags (without dashes) that say what the page does not."""

    def detect(self, names: Collection[str]) -> bool:
        """Whether a page with these sample names is this engine's."""

    def derive(
        self, infos: Mapping[str, Sequence[Mapping[str, str]]], values: Mapping[str, float], flags: Mapping[str, str]
    ) -> Derived:
        """Read the info families (name → one label set per series) beside the canonical values of the same page.

        ``flags`` holds what is known of the command line: nothing, for an engine on another machine.
        """


@runtime_checkable
class HasSide(Protocol):
    """A map whose engine says in a JSON document what its page does not."""

    SIDE_PATH: str
    SIDE_FLAG: str
    """The flag that turns the document on; empty where it needs none and older releases do not have it."""

    def read_side(self, document: object) -> dict[str, float]:
        """Return canonical values; a document of another shape gives none."""


def number(labels: Mapping[str, str], name: str) -> float | None:
    """Return a label's number; engines write ``None``, nothing or a word for what is not set."""
    try:
        found = float(labels[name])
    except (KeyError, ValueError):
        return None
    return found if finite(found) else None


def tokens_of_blocks(values: Mapping[str, float]) -> dict[str, float]:
    """Return tokens where a page counts blocks: an upper bound, since a request's last block is rarely full."""
    size = values.get("kv.block_size")
    if not size:
        return {}
    return {
        f"kv.{what}_tokens": values[f"kv.{what}_blocks"] * size
        for what in ("capacity", "used")
        if f"kv.{what}_blocks" in values and f"kv.{what}_tokens" not in values
    }


def json_number(found: object) -> float | None:
    """Return a JSON value as a finite number, None when it is none (JSON has integers of any length)."""
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    return float(found) if finite(found) else None
