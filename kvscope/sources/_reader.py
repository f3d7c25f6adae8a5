"""Which reader an engine's answer needs, told from the answer itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from kvscope.errors import SourceError
from kvscope.sources import maps
from kvscope.sources._page import PageReader, PageResult
from kvscope.sources._prometheus import series_names
from kvscope.sources.mapping import EngineMap
from kvscope.sources.settings import Settings
from kvscope.sources.trtllm_json import is_iterations, iterations_or_error
from probes.sample import Sample

_SHOWN_FAMILIES = 5


class Reader(Protocol):
    """Turns the answers of one target into samples, one after another."""

    engine: EngineMap
    flags: dict[str, str]
    settings: Settings
    tags: dict[str, str]

    def read(self, text: str, t: float, side: Mapping[str, float] | None = None) -> PageResult:
        """Return the samples of an answer that came at ``t``, and of values read beside it."""

    def missing(self, samples: Iterable[Sample]) -> list[str]:
        """Say which of the most needed metrics the answer has under none of their names."""


def reader_for(text: str, where: str, *, alone: bool = True) -> Reader:
    """Return a reader for the engine that wrote this answer. SourceError, with what was seen, when none did.

    ``alone``: a machine's exporter is refused, since nothing about serving can be told from it.
    """
    if not text.strip():
        raise SourceError(f"{where}: the page is empty; expected {maps.expected()}")
    if text.lstrip()[:1] == "<":
        raise SourceError(f"{where}: the answer is HTML, not a metrics page; expected {maps.expected()}")
    if is_iterations(text):
        return iterations_or_error(text, where)
    names = series_names(text)
    if not names:
        raise SourceError(f"{where}: nothing in the answer is a metric ({text.lstrip()[:40]!r}…)")
    return reader_of(names, where, alone=alone)


def reader_of(names: Sequence[str], where: str, *, alone: bool = True) -> PageReader:
    """Return a reader for the engine that has these sample names. SourceError when none has."""
    engines = maps.detect_all(names)
    if not engines or (alone and engines[0].ROLE == "machine"):
        shown = ", ".join(names[:_SHOWN_FAMILIES]) + (", …" if len(names) > _SHOWN_FAMILIES else "")
        what = f"readings of a machine ({engines[0].ENGINE})" if engines else "of no engine known here"
        raise SourceError(
            f"{where}: a metrics page, but {what}: {len(names)} names ({shown}); expected {maps.expected()}"
        )
    reader = PageReader(*engines)
    known = set(names)
    if spoken := maps.version_range(engines[0], known):
        reader.tags["version"] = spoken
    return reader
