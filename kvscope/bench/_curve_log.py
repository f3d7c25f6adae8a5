"""Requests held and admissions run, in a file: an interrupted curve goes on where it stopped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kvscope.bench._curve_admission import Admitted
from kvscope.bench._curve_meter import Held
from kvscope.bench._row_log import RowLog


class CurveLog:
    """By what was done: (what, tokens, repeat) of a request, (name, knobs) of an admission."""

    def __init__(self, path: Path | None, about: Mapping[str, Any]) -> None:
        self._log = RowLog(path, about)
        self._held: dict[tuple[str, int, int], Held] = {}
        self._admitted: dict[tuple[str, str], Admitted] = {}
        for row in self._log.rows:
            try:
                if "held" in row:
                    found = {**row["held"], "by_layer": tuple(row["held"]["by_layer"])}
                    self._held[row["what"], int(row["asked"]), int(row["repeat"])] = Held(**found)
                else:
                    self._admitted[row["name"], row["knobs"]] = Admitted(**row["admitted"])
            except (KeyError, TypeError, ValueError):
                continue

    def held(self, what: str, asked: int, repeat: int) -> Held | None:
        """Return what a request of ``asked`` tokens held, if it was measured already."""
        return self._held.get((what, asked, repeat))

    def add_held(self, what: str, asked: int, repeat: int, held: Held) -> None:
        """Keep what a request held."""
        self._log.add({"what": what, "asked": asked, "repeat": repeat, "held": asdict(held)})

    def admitted(self, name: str, knobs: Mapping[str, str]) -> Admitted | None:
        """Return an admission that was run already under these knobs."""
        return self._admitted.get((name, str(sorted(knobs.items()))))

    def add_admitted(self, knobs: Mapping[str, str], admitted: Admitted) -> None:
        """Keep an admission."""
        row = {"name": admitted.name, "knobs": str(sorted(knobs.items())), "admitted": asdict(admitted)}
        self._log.add(row)
