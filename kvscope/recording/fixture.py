"""A recording as JSON lines: small, written by hand or by a tool, and readable in a review.

The first line is ``{"kvscope_recording": 1, "source": {…}, "synthetic": bool, "tags": {…}}``; then come marks
``{"mark": name, "t": …, "tags": {…}}`` and samples ``{"t": …, "s": {"metric": value, "metric{layer=0}": value}}``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from kvscope.recording.reader import RecordedMark
from kvscope.recording.schema import checked_series
from kvscope.store import MarkLike
from probes import border
from probes.sample import Labels, Sample

_LONGEST = 16 << 10
VERSION = 1
KEY = "kvscope_recording"
_SAFE = " !\"#$&'()*+-./:;<>?@[]^_`|~"
_SERIES = re.compile(r"([\w.]+)(?:\{([^{}]*)\})?")


def parse_series(text: str) -> tuple[str, Labels]:
    """Split ``metric{layer=0,le=0.5}`` into its name and labels. ValueError when it is not of that form."""
    found = _SERIES.fullmatch(text) if len(text) <= _LONGEST else None
    if found is None:
        raise ValueError(f"{border.shown(text)} is no series; expected metric or metric{{label=value}}")
    pairs = [pair.partition("=") for pair in found[2].split(",")] if found[2] else []
    if any(not equals for _, equals, _ in pairs):
        raise ValueError(f"{border.shown(text)}: a label has no value")
    return checked_series(found[1], ((name.strip(), unquote(value.strip())) for name, _, value in pairs))


def series_text(metric: str, labels: Labels) -> str:
    """Undo ``parse_series``; what would end a label is written as ``%2C``."""
    if not labels:
        return metric
    return metric + "{" + ",".join(f"{name}={quote(value, safe=_SAFE)}" for name, value in labels) + "}"


def parse_line(line: Mapping[str, Any]) -> list[Sample] | RecordedMark:
    """Return what a line after the first says. ValueError when it is neither a mark nor samples."""
    t = border.time_s(line.get("t"), "time 't'")
    if "mark" in line:
        return RecordedMark(border.text(line["mark"], "mark"), t, border.tags(line.get("tags"), "tags"))
    if not isinstance(line.get("s"), dict):
        raise ValueError("expected {mark, t, tags} or {t, s}")
    found = []
    for text, value in border.mapping(line["s"], "s").items():
        metric, labels = parse_series(text)
        found.append(Sample(metric, border.number(value, border.printable(text, 80)), t, labels))
    return found


def write_fixture(
    path: Path,
    items: Iterable[Sample | MarkLike],
    *,
    source: Mapping[str, str],
    tags: Mapping[str, str] | None = None,
    synthetic: bool = False,
) -> None:
    """Write samples and marks (in time order) as JSON lines."""
    header = {KEY: VERSION, "source": dict(source), "synthetic": synthetic, "tags": dict(tags or {})}
    with path.open("w", encoding="utf-8") as file:
        file.write(json.dumps(header) + "\n")
        for (t, is_sample), group in groupby(items, key=lambda item: (item.t, isinstance(item, Sample))):
            if is_sample:
                values = {series_text(s.metric, s.labels): s.value for s in group if isinstance(s, Sample)}
                file.write(json.dumps({"t": t, "s": values}) + "\n")
                continue
            for mark in group:
                if not isinstance(mark, Sample):
                    file.write(json.dumps({"mark": mark.name, "t": mark.t, "tags": dict(mark.tags)}) + "\n")
