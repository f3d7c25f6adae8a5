"""Measure cells one after another; a cell that cannot be had for its sizes is a row that says why."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from engine.knobs import KnobError
from engine.lab.accuracy.cell import Cell
from engine.lab.accuracy.laboratory import Laboratory

if TYPE_CHECKING:
    from engine.weights._base import Loaded


def run(order: dict[str, Any], loaded: Loaded, tell: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """One row a cell of ``order["cells"]``, in their order."""
    laboratory = Laboratory(loaded, tell)
    for values in order["cells"]:
        cell = Cell.from_json(values)
        try:
            measured = laboratory.measure(cell)
        except KnobError:
            raise
        except ValueError as error:
            measured = {"skipped": str(error)}
        yield {"cell": values, "model": loaded.name, **measured}
