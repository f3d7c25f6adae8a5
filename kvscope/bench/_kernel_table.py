"""The table of attention kernels alone: a layer's decode attention by kernel, batch and context, on one device.

The engine measures it in a process of its own, `python -m engine.kernel_table`; here it becomes a result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvscope.bench._engine_module import run_module
from kvscope.bench.result.quantity import Quantity
from kvscope.bench.result.result import Result, Table
from kvscope.errors import UsageError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

DEVICES = {"cpu": "engine.kernel_table", "cuda": "engine.kernels._cuda.table"}
"""By device, the module that measures there."""
DTYPE = {"cpu": "float32", "cuda": "bfloat16"}
COLUMNS = ("path", "batch", "context", "kept", "form", "ms", "gb_per_s", "share")
UNITS = ("", "", "", "ratio", "", "", "", "ratio")


def check_device(name: str) -> None:
    """UsageError where there is no such table."""
    if name not in DEVICES:
        raise UsageError(f"--device {name!r}{nearest(name, DEVICES)}; expected {' or '.join(DEVICES)}")


def measure(
    device: str, contexts: Sequence[int], batches: Sequence[int], rounds: int, tick: Callable[[float], None]
) -> Result:
    """Run the engine's measurement and wait for it; UsageError where the engine is not installed, SourceError."""
    words = ["--rounds", str(rounds), "--contexts", *map(str, contexts), "--batches", *map(str, batches)]
    return result_of(run_module(DEVICES[device], words, tick), device)


def result_of(found: Mapping[str, Any], device: str = "cpu") -> Result:
    """Put the rows into a table, and say how the kernels compare at each batch and context."""
    rows = found["rows"]
    return Result(
        bench="kernels",
        title="Decode attention of one layer, by kernel",
        tags={"engine": "kvscope-engine", "device": device, "workload": f"one layer, {DTYPE[device]}, random pages"},
        settings={"threads": found["threads"], "copy GB/s": found["copy_gb_per_s"]},
        quantities=tuple(
            Quantity(
                f"{row['path']}_{row['batch']}x{row['context']}_{row['form']}_s", row["ms"] / 1e3, "s", None, "lower"
            )
            for row in rows
        ),
        tables=(Table("By kernel", COLUMNS, UNITS, tuple(tuple(row[name] for name in COLUMNS) for row in rows)),),
        says=tuple(_said(rows, size) for size in sorted({(row["batch"], row["context"]) for row in rows})),
        extra={"rows": rows, "copy_gb_per_s": found["copy_gb_per_s"]},
    )


def _said(rows: Sequence[Mapping[str, Any]], size: tuple[int, int]) -> str:
    ms = {row["path"]: row["ms"] for row in rows if (row["batch"], row["context"]) == size and row["form"] == "hot"}
    return (
        f"{size[0]} x {size[1]}: block reads {ms['dense'] / ms['block']:.2f} times as fast as dense and "
        f"{ms['generic'] / ms['block']:.2f} times as fast as generic; choosing included, "
        f"{ms['dense'] / ms['select+block']:.2f} times as fast as dense."
    )
