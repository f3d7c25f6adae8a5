"""The accuracy table as a result: table, Pareto plot, sentences, and rows for other programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kvscope.bench._accuracy_rows import Row, data, density_text, family, front, row_of, way
from kvscope.bench._accuracy_says import says, warns
from kvscope.bench.result.quantity import Quantity
from kvscope.bench.result.result import Cell, Plot, Result, Series, Table

COLUMNS = (
    "way",
    "block",
    "accuracy",
    "95 %",
    "2nd turn",
    "NLL",
    "margin p5",
    "KL to full",
    "bytes",
    "of full",
    "front",
)
UNITS = ("", "", "ratio", "", "ratio", "", "", "", "B", "ratio", "")


def make(found: Sequence[dict[str, Any]], model: str, settings: dict[str, Any]) -> Result:
    """Skipped cells are named among the warnings."""
    rows = [row_of(one) for one in found if "skipped" not in one]
    skipped = [f"{one['cell']['task']} not measured: {one['skipped']}" for one in found if "skipped" in one]
    groups = [[row for row in rows if data(row) == key] for key in dict.fromkeys(data(row) for row in rows)]
    return Result(
        bench="accuracy",
        title="Accuracy of compressed KV: given answers scored through the decode path",
        tags={"engine": "kvscope-engine", "model": model},
        settings=settings,
        quantities=tuple(_quantities(rows)),
        tables=tuple(_table(group) for group in groups),
        plots=tuple(_plot(group) for group in groups),
        says=tuple(says(rows)),
        warns=(*dict.fromkeys(skipped), *warns(rows)),
        extra={"rows": rows},
    )


def _heading(group: Sequence[Row]) -> str:
    first = group[0]
    density = "" if first["density"] is None else f", {density_text(first['density'])} facts a token"
    shown = ", the question shown to what decides importance" if first["importance"] == "aware" else ""
    asked = f"n {first['n']} and {first['second_n']} a row"
    return f"{first['task']}, {first['context']} tokens{density}, seed {first['seed']}{shown}; {asked}"


def _table(group: Sequence[Row]) -> Table:
    full = next((row["bytes"] for row in group if row["policy"] == "full"), None)
    best = {id(row) for row in front([row for row in group if not row["control"]])}
    return Table(_heading(group), COLUMNS, UNITS, tuple(_cells(row, full, id(row) in best) for row in group))


def _cells(row: Row, full: float | None, best: bool) -> tuple[Cell, ...]:
    return (
        way(row),
        row["block"],
        row["accuracy"],
        f"{100 * row['low']:.1f}-{100 * row['high']:.1f}",
        row["second_accuracy"],
        f"{row['nll']:.3f}",
        f"{row['margin_p5']:.2f}",
        f"{row['kl']:.4f}",
        row["bytes"],
        row["bytes"] / full if full else None,
        "*" if best else "",
    )


def _plot(group: Sequence[Row]) -> Plot:
    shown = [row for row in group if not row["control"]]
    lines = [Series("front", *_points(front(shown)))]
    for name in dict.fromkeys(family(row) for row in shown):
        lines.append(Series(name, *_points([row for row in shown if family(row) == name])))
    return Plot(f"Accuracy against bytes: {_heading(group)}", "MiB of KV a context", "accuracy", "ratio", tuple(lines))


def _points(rows: Sequence[Row]) -> tuple[tuple[float, ...], tuple[float | None, ...]]:
    ordered = sorted(rows, key=lambda row: row["bytes"])
    return tuple(row["bytes"] / 2**20 for row in ordered), tuple(row["accuracy"] for row in ordered)


def _quantities(rows: Sequence[Row]) -> Iterator[Quantity]:
    for row in rows:
        name = (
            f"{row['task']}.{row['context']}.{density_text(row['density'])}.b{row['block']}.s{row['seed']}.{way(row)}"
        )
        for turn, prefix in (("", ""), ("second_turn.", "second_")):
            half = (row[f"{prefix}high"] - row[f"{prefix}low"]) / 2
            yield Quantity(f"{turn}accuracy.{name}", row[f"{prefix}accuracy"], "ratio", half, "higher")
        yield Quantity(f"margin_p5.{name}", row["margin_p5"], "", None, "higher")
        yield Quantity(f"kl.{name}", row["kl"], "", None, "lower")
        yield Quantity(f"bytes.{name}", row["bytes"], "B", 0.0, "lower")
