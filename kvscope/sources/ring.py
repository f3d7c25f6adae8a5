"""The flight recorder of an engine on this machine: alive, or what it wrote before it died."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kvscope.errors import SourceError
from kvscope.sources.source import Description, Mark, Poll
from probes import border
from probes.border import finite
from probes.ring_reader import RingError, RingReader
from probes.sample import Labels, Sample

STEP_GAP_S = 0.05
LAYER_GAP_S = 0.5
"""Rows nearer than this to the last one taken are passed over. Counters lose no event by it, only time resolution."""
PAST_STEP_GAP_S, PAST_LAYER_GAP_S = 0.2, 2.0
"""The same for a past that is read in slices, all but the last of them: it is long, and old."""
SLICE_ROWS = 500
"""Rows of a long past that are in memory at once; a wide row and its samples are about 20 KiB."""

_IDENTITY = ("engine", "version", "model", "device", "dtype")
_CUTS = ("knobs", "mark", "load")
"""Kinds of events at which something was reconfigured or named: a segment starts there."""

Row = tuple[float, ...]


class RingSource:
    """Reads what a recorder holds, then what is new at each poll; ``sliced``: what it holds over several polls."""

    def __init__(self, path: Path, sliced: bool = False) -> None:
        try:
            self._reader = RingReader(path)
        except RingError as error:
            raise SourceError(str(error)) from error
        self._path = path
        self._most = SLICE_ROWS if sliced else None
        self._cuts: list[float] = []
        self._steps = _StepColumns(self._reader.columns, self.rank)
        self._requests = [(_series(name), at) for at, name in enumerate(self._reader.request_columns) if name != "t"]
        self._request_t = self._reader.request_columns.index("t")
        self._tags = _tags(self._reader.header)
        self._seen = [0, 0, 0]
        self._epochs = 0
        self._last_t = -math.inf
        self._told_dead = False
        self._told_torn = False
        self._told_halted = False

    @property
    def rank(self) -> int | None:
        """Which rank of an engine wrote this, where it is one of several."""
        index = self._of_rank("index")
        return index if isinstance(index, int) and not isinstance(index, bool) and 0 <= index < 1 << 20 else None

    @property
    def run(self) -> str | None:
        """What the recorders of one engine's ranks have in common."""
        run = self._of_rank("run")
        return border.printable(run, border.TEXT_CHARS) if run is not None else None

    def _of_rank(self, name: str) -> object:
        rank = self._reader.header.get("rank")
        return rank.get(name) if isinstance(rank, dict) else None

    @property
    def writer(self) -> int:
        """The process that wrote this, whether it lives or not."""
        return self._reader.pid

    @property
    def pid(self) -> int | None:
        """The engine's process while it lives."""
        return self._reader.pid if self._reader.is_alive() else None

    def describe(self) -> Description:
        tags = _tags(self._reader.header)
        alive, halted = self._reader.is_alive(), self._reader.halted()
        state = f", {self._death()}" if not alive else f", {halted}" if halted else ""
        return Description(
            "ring",
            str(self._path),
            tags.get("engine", ""),
            tags.get("version", ""),
            tags,
            alive=alive and not halted,
            note=f"flight recorder of pid {self._reader.pid}{state}",
            heard_s=self._reader.heartbeat_s,
        )

    def poll(self) -> Poll:
        # Asked before reading: a process that dies after its last row was read must not end unread.
        alive = self._reader.is_alive()
        marks = self._read_events()
        self._cuts += [mark.t for mark in marks]
        samples, more = self._read_steps()
        if more:
            return Poll(samples, tuple(marks), more=True)
        self._cuts.clear()
        # Steps before requests: a request ends inside a step whose row comes after it.
        samples = sorted(samples + self._read_requests(), key=lambda sample: sample.t)
        notices = []
        if not alive and not self._told_dead:
            self._told_dead = True
            notices.append(f"pid {self._reader.pid} {self._death()}; what it recorded was read")
        halted = self._reader.halted()
        if bool(halted) != self._told_halted:
            self._told_halted = bool(halted)
            notices.append(f"pid {self._reader.pid}: {halted or 'it goes on'}")
        if self._reader.torn and not self._told_torn:
            self._told_torn = True
            notices.append(f"{self._reader.torn} rows were half written and left out")
        return Poll(samples, tuple(marks), tuple(notices), ended=not alive)

    def close(self) -> None:
        self._reader.close()

    def _death(self) -> str:
        from kvscope.sources.clock import clock_text

        how = "ended" if self._reader.closed else "died"
        return f"{how}, last heard of at {clock_text(self._reader.heartbeat_s)}"

    def _read_events(self) -> list[Mark]:
        marks = []
        for seq, event in self._reader.events(self._seen[2]):
            self._seen[2] = seq
            if "mark" not in event and event.get("kind") not in _CUTS:
                continue
            try:
                self._epochs = border.whole(event.get("epoch", self._epochs + 1), "epoch")
                tags = {**self._tags, **_event_tags(event)}
                name = border.text(event.get("mark") or f"epoch-{self._epochs}", "mark")
                t = border.time_s(self._reader.wall(border.number(event.get("t"), "t")), "t")
            except border.Refused:
                self._reader.torn += 1
                continue
            self._tags = tags
            marks.append(Mark(name, t, dict(tags)))
        return marks

    def _read_steps(self) -> tuple[list[Sample], bool]:
        """Return samples of the next rows, and whether there are more rows to read at once."""
        rows: list[tuple[float, Row]] = []
        taken = 0
        for seq, row in self._reader.steps(self._seen[0], self._most):
            self._seen[0] = seq
            taken += 1
            t = self._reader.wall(row[self._steps.t])
            # Rows stand in the order of their time; one that does not was not written by a recorder.
            if (rows[-1][0] if rows else self._last_t) <= t <= border.LATEST_S:
                rows.append((t, row))
            else:
                self._reader.torn += 1
        if rows:
            self._last_t = max(self._last_t, rows[-1][0])
        more = taken == self._most
        gaps = (PAST_STEP_GAP_S, PAST_LAYER_GAP_S) if more else (STEP_GAP_S, LAYER_GAP_S)
        return self._steps.samples(rows, self._cuts, *gaps), more

    def _read_requests(self) -> list[Sample]:
        found = []
        for seq, row in self._reader.requests(self._seen[1]):
            self._seen[1] = seq
            t = self._reader.wall(row[self._request_t])
            if not border.EARLIEST_S <= t <= border.LATEST_S:
                self._reader.torn += 1
                continue
            for (metric, labels), at in self._requests:
                if border.finite(row[at]):
                    found.append(Sample(metric, row[at], t, labels))
        return found


class _StepColumns:
    """Which columns of a step row mean what, and which rows are worth taking."""

    def __init__(self, columns: Sequence[str], rank: int | None) -> None:
        self.t = columns.index("t")
        series = [(_series(name, rank), at) for at, name in enumerate(columns) if name != "t"]
        by_layer = [(bool(labels) and labels[0][0] == "layer", metric, labels, at) for (metric, labels), at in series]
        self._plain = [(metric, labels, at) for layer, metric, labels, at in by_layer if not layer]
        self._layers = [(metric, labels, at) for layer, metric, labels, at in by_layer if layer]
        self._last_step = -math.inf
        self._last_layer = -math.inf

    def samples(
        self, rows: Sequence[tuple[float, Row]], cuts: Sequence[float], step_gap_s: float, layer_gap_s: float
    ) -> list[Sample]:
        """Return the samples of the rows taken: spaced ones, the last, and those on both sides of every cut."""
        found: list[Sample] = []
        for index, (t, row) in enumerate(rows):
            after = rows[index + 1][0] if index + 1 < len(rows) else math.inf
            before = rows[index - 1][0] if index else self._last_step
            needed = index + 1 == len(rows) or any(before < cut <= t or t < cut <= after for cut in cuts)
            if needed or t - self._last_step >= step_gap_s:
                self._last_step = t
                found += [Sample(metric, row[at], t, labels) for metric, labels, at in self._plain if finite(row[at])]
                if needed or t - self._last_layer >= layer_gap_s:
                    self._last_layer = t
                    found += [
                        Sample(metric, row[at], t, labels) for metric, labels, at in self._layers if finite(row[at])
                    ]
        return found


def _series(column: str, rank: int | None = None) -> tuple[str, Labels]:
    """Split ``metric[3]`` into the metric and its layer label; a rank's own metrics carry the rank."""
    metric, bracket, layer = column.partition("[")
    if rank is not None and metric.startswith("rank."):
        return metric, (("rank", str(rank)),)
    return metric, (("layer", layer.rstrip("]")),) if bracket else ()


def _tags(header: Mapping[str, Any]) -> dict[str, str]:
    try:
        tags = {name: border.text(header[name], name) for name in _IDENTITY if header.get(name)}
        return {**tags, **border.tags(header.get("tags"), "tags")}
    except border.Refused:
        return {}


def _event_tags(event: Mapping[str, Any]) -> dict[str, str]:
    """Return an event's tags; where a writer gives none, the knobs that were set are its tags."""
    return border.tags(event.get("tags") or event.get("set"), "tags")
