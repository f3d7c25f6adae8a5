"""What an engine warned of: how often within the segment, exactly; and what a matched prefix lost on its way back."""

from __future__ import annotations

from collections.abc import Callable

from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import signal
from kvscope.signals.window import Window
from probes.catalog import CATALOG


def _count(metric: str) -> Callable[[Window], Reading | Missing]:
    def formula(window: Window) -> Reading | Missing:
        grown = window.increase_of(metric)
        if isinstance(grown, Missing):
            return grown
        return Reading(grown, 0.0, "events", "measured: lines of the log", 1, 1)

    return formula


for _line in CATALOG.values():
    if _line.name.startswith("events.") and _line.name != "events.oom":
        signal(f"{_line.name.removeprefix('events.')}_events", unit="events", needs=(_line.name,), help=_line.help)(
            _count(_line.name)
        )


@signal(
    "prefix_restored_share",
    unit="ratio",
    needs=("prefix.hits", "prefix.matched"),
    help="Prompt tokens taken from the prefix cache / tokens that a cached prefix shares: below 1 some are lost.",
)
def prefix_restored_share(window: Window) -> Reading | Missing:
    nothing = "no prompt matched a cached prefix in this segment"
    return window.ratio(window.counter("prefix.hits"), window.counter("prefix.matched"), "ratio", nothing)
