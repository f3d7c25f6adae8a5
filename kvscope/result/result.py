"""A benchmark's outcome, the same shape for all: settings, quantities, tables, plots and sentences."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from kvscope.errors import UsageError
from probes import border

Better = Literal["higher", "lower", ""]


@dataclass(frozen=True, slots=True)
class Quantity:
    """``value ± error`` (half of an interval of about 95 %); ``error`` None: measured once, so it cannot be known."""

    name: str
    value: float
    unit: str
    error: float | None = None
    better: Better = ""

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "error": self.error,
            "better": self.better,
        }

    @classmethod
    def from_json(cls, found: object) -> Quantity:
        """Read one back; border.Refused when it is none."""
        one = border.mapping(found, "a quantity")
        name = border.text(one.get("name"), "the name of a quantity")
        better: Better | None = next((way for way in get_args(Better) if way == (one.get("better") or "")), None)
        if better is None:
            raise border.Refused(f"{name}: better is {border.shown(one['better'])}, expected higher, lower or nothing")
        return cls(
            name,
            border.number(one.get("value"), f"the value of {name}"),
            border.text(one.get("unit"), f"the unit of {name}"),
            None if one.get("error") is None else border.number(one["error"], f"the error of {name}", 0.0),
            better,
        )


SCHEMA = 1
Cell = str | float | int | None


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells; ``units`` (one a column, "" for plain) say how a number is written."""

    title: str
    columns: tuple[str, ...]
    units: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a plot; ``ys`` None where nothing was measured; not ``joined``: points that no line leads through."""

    name: str
    xs: tuple[float, ...]
    ys: tuple[float | None, ...]
    joined: bool = True


@dataclass(frozen=True, slots=True)
class Plot:
    """Lines over a common x; ``even``: x values are named steps, drawn at equal distances."""

    title: str
    x: str
    y: str
    unit: str
    series: tuple[Series, ...]
    even: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """``says`` are the sentences a person reads first; ``warns`` those that ask for something to be done.

    ``failed`` says that what was checked did not hold: the command then ends in 1. ``untold``: it cannot be told; 4.
    """

    bench: str
    title: str
    tags: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    quantities: tuple[Quantity, ...] = ()
    tables: tuple[Table, ...] = ()
    plots: tuple[Plot, ...] = ()
    says: tuple[str, ...] = ()
    warns: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    failed: bool = False
    untold: bool = False


def as_json(result: Result) -> str:
    """Return the result as JSON; `kvscope compare` reads it back."""
    return json.dumps(
        {
            "schema": SCHEMA,
            "bench": result.bench,
            "title": result.title,
            "tags": dict(result.tags),
            "settings": dict(result.settings),
            "says": list(result.says),
            "warns": list(result.warns),
            "quantities": [one.as_json() for one in result.quantities],
            "tables": [_table(table) for table in result.tables],
            **result.extra,
        },
        indent=2,
        ensure_ascii=False,
    )


def write(path: Path, text: str) -> None:
    """Put a file in its place as a whole: whoever reads it meanwhile sees the old one. UsageError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        part.write_text(text, encoding="utf-8")
        os.replace(part, path)
    except OSError as error:
        raise UsageError(f"{path}: cannot write it: {error.strerror or error}") from error


def _table(table: Table) -> dict[str, Any]:
    rows: Sequence[dict[str, Cell]] = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    return {"title": table.title, "columns": list(table.columns), "units": list(table.units), "rows": rows}
