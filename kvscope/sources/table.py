"""Tables. Read: CSV of samples (as ``export --csv`` writes), of one column a metric, and what nvidia-smi prints.

Written: a row a sample as CSV, or as Parquet with pyarrow (extra ``parquet``).
"""

from __future__ import annotations

import contextlib
import csv
import datetime
import io
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kvscope.errors import SourceError, UsageError
from kvscope.sources.saved import read_text
from kvscope.sources.source import Description, Poll
from kvscope.sources.stated.figure import Stated, figure_of, number_of, unknown_notice
from probes import border
from probes.catalog import metric_of
from probes.sample import Labels, Sample

HEAD = ("t", "metric", "value", "unit", "labels", "source")
"""The head of a table of samples."""

_EXTRA = "writing Parquet needs one package more: pip install 'kvscope[parquet]'"
_GROUP = 1 << 17
"""Rows of a Parquet row group: so many are held until they are written."""
_MOST_ROWS = 2_000_000
_TIMES = ("t", "time", "timestamp", "ts", "date")
_NVIDIA = {
    "utilization.gpu [%]": ("gpu.util", 0.01),
    "utilization.memory [%]": ("gpu.mem_bw_util", 0.01),
    "memory.used [mib]": ("gpu.mem_used", float(1 << 20)),
    "memory.total [mib]": ("config.device_memory_bytes", float(1 << 20)),
    "power.draw [w]": ("gpu.power", 1.0),
}


def looks_table(start: bytes) -> bool:
    """Whether a text's first line is the head of such a table."""
    head = start.split(b"\n", 1)[0].decode("utf-8", errors="replace").lower()
    columns = [one.strip().strip('"') for one in head.split(",")]
    return len(columns) > 1 and columns[0] in _TIMES


class TableSource:
    """Reads a table whole. SourceError when no column means anything."""

    def __init__(self, path: Path) -> None:
        self._path = path
        rows = csv.reader(io.StringIO(read_text(path)))
        try:
            self._head = [one.strip() for one in next(rows)]
        except (StopIteration, csv.Error) as error:
            raise SourceError(f"{path}: an empty table; expected a head with a time and metrics") from error
        self._stated = Stated("")
        self._engine = ""
        self._bad = 0
        try:
            self._samples = list(self._long(rows) if self._is_long() else self._wide(rows))
        except csv.Error as error:
            raise SourceError(f"{path}: not a table ({error})") from error
        if not self._samples:
            raise SourceError(
                f"{path}: a table, but no column is a metric; columns: {', '.join(self._head[:6])}; "
                "expected t, metric, value, or a time and columns named by metrics"
            )
        self._samples.sort(key=lambda sample: sample.t)

    def describe(self) -> Description:
        return Description(
            "table", str(self._path), self._engine, tags={"engine": self._engine} if self._engine else {}
        )

    def poll(self) -> Poll:
        samples, self._samples = self._samples, []
        notices = unknown_notice(self._stated)
        if self._bad:
            notices.append(f"{self._bad} rows hold no time or no number and were skipped")
        return Poll(samples, notices=tuple(notices), ended=True)

    def close(self) -> None:
        """Nothing is held open."""

    def _is_long(self) -> bool:
        return {"metric", "value"} <= {one.lower() for one in self._head}

    def _long(self, rows: Iterator[list[str]]) -> Iterator[Sample]:
        columns = {name.lower(): index for index, name in enumerate(self._head)}
        labels_at = columns.get("labels")
        for index, row in enumerate(rows):
            if index >= _MOST_ROWS:
                break
            t = _time(row[0]) if row else None
            value = number_of(row[columns["value"]]) if len(row) > columns["value"] else None
            if t is None or value is None:
                self._bad += bool(row)
                continue
            labels = _labels(row[labels_at]) if labels_at is not None and labels_at < len(row) else ()
            name = row[columns["metric"]]
            for figure in figure_of(name, value[0], "", "", self._stated)[:1]:
                if figure.metric:
                    yield Sample(figure.metric, figure.value, t, labels or figure.labels)
                if figure.metric == "engine.info":
                    self._engine = dict(labels).get("engine", self._engine)

    def _wide(self, rows: Iterator[list[str]]) -> Iterator[Sample]:
        meanings = [self._meaning(name) for name in self._head]
        gpu_at = next((index for index, name in enumerate(self._head) if name in ("index", "gpu")), None)
        for number, row in enumerate(rows):
            if number >= _MOST_ROWS:
                break
            t = _time(row[0]) if row else None
            if t is None:
                self._bad += bool(row)
                continue
            for meaning, text in zip(meanings[1:], row[1:], strict=False):
                value = number_of(text.strip()) if meaning else None
                if meaning and value is not None:
                    gpu = (("gpu", border.printable(row[gpu_at].strip()) if gpu_at is not None else "0"),)
                    metric, scale, labels = meaning
                    yield Sample(metric, value[0] * scale, t, gpu if metric.startswith("gpu.") else labels)

    def _meaning(self, column: str) -> tuple[str, float, Labels] | None:
        known = _NVIDIA.get(column.lower())
        if known is not None:
            return known[0], known[1], ()
        if column.lower() in (*_TIMES, "index", "gpu", "name", "uuid"):
            return None
        name, _, unit = column.partition(" [")
        figure = figure_of(name, 1.0, unit.rstrip("]"), "", self._stated)[0]
        return (figure.metric, figure.value, figure.labels) if figure.metric else None


def _time(text: str) -> float | None:
    words = text.strip().strip('"')
    try:
        value = float(words)
    except ValueError:
        try:
            found = datetime.datetime.fromisoformat(words.replace("/", "-"))
        except ValueError:
            return None
        return (found if found.tzinfo else found.replace(tzinfo=datetime.UTC)).timestamp()
    if not border.finite(value):
        return None
    return value / 1e3 if 1e11 <= value < 1e14 else value


def _labels(text: str) -> Labels:
    pairs = {}
    for name, quoted, bare in re.findall(r'([A-Za-z_]\w*)=(?:"((?:[^"\\]|\\.)*)"|([^",;]*))', text):
        try:
            pairs[name] = str(json.loads(f'"{quoted}"')) if quoted else bare
        except ValueError:
            pairs[name] = quoted
    return tuple(sorted((name, border.printable(said, border.TEXT_CHARS)) for name, said in pairs.items()))


def rows_of(samples: Sequence[Sample], source: str = "") -> Iterator[list[str]]:
    """Return samples as rows under ``HEAD``."""
    for metric, value, t, labels in samples:
        line = metric_of(metric)
        said = ";".join(f"{name}={json.dumps(text, ensure_ascii=False)}" for name, text in labels)
        yield [repr(t), metric, repr(value), line.unit if line else "", said, source]


class CsvTable:
    """A CSV file, or standard output for ``-``; ``source`` is what was read."""

    def __init__(self, path: Path, source: str) -> None:
        self._own = str(path) != "-"
        self._file = path.open("w", encoding="utf-8", newline="") if self._own else sys.stdout
        self._source = source
        self._table = csv.writer(self._file)
        self._table.writerow(HEAD)

    def write(self, samples: Sequence[Sample]) -> None:
        self._table.writerows(rows_of(samples, self._source))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._own:
            self._file.close()


class ParquetTable:
    """A Parquet file: ``t`` as a UTC timestamp (µs), ``labels`` as a map. UsageError without pyarrow."""

    def __init__(self, path: Path, source: str) -> None:
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError as error:
            raise UsageError(f"--parquet: {_EXTRA}") from error
        self._arrow: Any = pyarrow
        text = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
        types = {
            "t": pyarrow.timestamp("us", tz="UTC"),
            "metric": text,
            "value": pyarrow.float64(),
            "unit": text,
            "labels": pyarrow.map_(pyarrow.string(), pyarrow.string()),
            "source": text,
        }
        self._schema = pyarrow.schema([(name, types[name]) for name in HEAD])
        self._writer = pyarrow.parquet.ParquetWriter(str(path), self._schema, compression="zstd")
        self._source = source
        self._held: list[Sample] = []

    def write(self, samples: Sequence[Sample]) -> None:
        self._held += samples
        while len(self._held) >= _GROUP:
            self._put(self._held[:_GROUP])
            del self._held[:_GROUP]

    def _put(self, samples: Sequence[Sample]) -> None:
        units = {name: line.unit if (line := metric_of(name)) else "" for name in {one.metric for one in samples}}
        columns: dict[str, list[Any]] = {
            "t": [round(one.t * 1e6) for one in samples],
            "metric": [one.metric for one in samples],
            "value": [one.value for one in samples],
            "unit": [units[one.metric] for one in samples],
            "labels": [list(one.labels) for one in samples],
            "source": [self._source] * len(samples),
        }
        arrays = [self._arrow.array(columns[one.name], type=one.type) for one in self._schema]
        self._writer.write_table(self._arrow.Table.from_arrays(arrays, schema=self._schema))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        with contextlib.ExitStack() as last:
            last.callback(self._writer.close)
            if self._held:
                self._put(self._held)
