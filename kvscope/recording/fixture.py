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
from kvscope.store import MarkLike
from probes.sample import Labels, Sample

VERSION = 1
KEY = "kvscope_recording"
_SAFE = " !\"#$&'()*+-./:;<>?@[]^_`|~"
_SERIES = re.compile(r"([\w.]+)(?:\{([^{}]*)\})?")


def parse_series(text: str) -> tuple[str, Labels]:
    """Split ``metric{layer=0,le=0.5}`` into its name and labels. ValueError when it is not of that form."""
    found = _SERIES.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no series; expected metric or metric{{label=value}}")
    pairs = [pair.partition("=") for pair in found[2].split(",")] if found[2] else []
    if any(not equals for _, equals, _ in pairs):
        raise ValueError(f"{text!r}: a label has no value")
    return found[1], tuple(sorted((name.strip(), unquote(value.strip())) for name, _, value in pairs))


def series_text(metric: str, labels: Labels) -> str:
    """Undo ``parse_series``; what would end a label is written as ``%2C``."""
    if not labels:
        return metric
    return metric + "{" + ",".join(f"{name}={quote(value, safe=_SAFE)}" for name, value in labels) + "}"


def parse_line(line: Mapping[str, Any]) -> list[Sample] | RecordedMark:
    """Return what a line after the first says. ValueError when it is neither a mark nor samples."""
    t = line.get("t")
    if isinstance(t, bool) or not isinstance(t, int | float):
        raise ValueError("no time 't'")
    if "mark" in line:
        tags = line.get("tags", {})
        return RecordedMark(str(line["mark"]), float(t), {str(name): str(value) for name, value in tags.items()})
    values = line.get("s")
    if not isinstance(values, dict):
        raise ValueError("expected {mark, t, tags} or {t, s}")
    found = []
    for text, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{text}: {value!r} is no number")
        metric, labels = parse_series(text)
        found.append(Sample(metric, float(value), float(t), labels))
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
