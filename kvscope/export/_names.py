"""The page names of one engine as PromQL selectors: what the fourth reader of a signal puts together."""

from __future__ import annotations

from kvscope.sources.mapping import Entry
from kvscope.sources.maps import load

BY = "instance"
"""What one engine is to Prometheus; series that differ in other labels belong to the same engine."""


class PageNames:
    """One engine's words for canonical metrics; what several of its names mean together is added up."""

    def __init__(self, engine: str) -> None:
        self._entries: dict[str, list[Entry]] = {}
        for entry in load(engine).MAP:
            if not entry.until and not entry.unless:
                self._entries.setdefault(entry.metric, []).append(entry)

    def gauge(self, metric: str, window: str) -> str | None:
        """Return the time average: averaged over label sets where it is a share, else summed."""
        return self._gauge(metric, f"avg_over_time({{}}[{window}])")

    def now(self, metric: str) -> str | None:
        """Return the present value."""
        return self._gauge(metric, "{}")

    def highest(self, metric: str, window: str) -> str | None:
        """Return the largest value within the window."""
        return self._gauge(metric, f"max_over_time({{}}[{window}])")

    def rate(self, metric: str, window: str) -> str | None:
        """Return the rate of a counter, or of a histogram's ``_sum`` or ``_count``; several names are added up."""
        stem, _, part = metric.rpartition(".")
        histogram = part in ("sum", "count")
        found = self._entries.get(stem if histogram else metric, [])
        if not found or any((entry.kind == "histogram") != histogram for entry in found):
            return None
        suffix = f"_{part}" if histogram else ""
        rates = [
            _scaled(entry if part != "count" else None, _once(entry, f"rate({_selector(entry, suffix)}[{window}])"))
            for entry in found
        ]
        return f"sum by ({BY}) ({_union(rates)})"

    def buckets(self, metric: str, window: str) -> str | None:
        """Return the rates of a histogram's buckets."""
        found = self._entries.get(metric, [])
        if len(found) != 1 or found[0].kind != "histogram" or found[0].scale != 1:
            return None
        rate = _once(found[0], f"rate({_selector(found[0], '_bucket')}[{window}])")
        return f"sum by ({BY}, le) ({rate})"

    def _gauge(self, metric: str, how: str) -> str | None:
        found = self._entries.get(metric, [])
        if len(found) != 1 or found[0].kind != "gauge":
            return None
        entry = found[0]
        over = {"mean": "avg", "max": "max"}.get(entry.combine, "sum")
        return _scaled(entry, f"{over} by ({BY}) ({_once(entry, how.format(_selector(entry)))})")


def _union(parts: list[str]) -> str:
    """Put series of several names side by side: a name that this page does not carry takes nothing from the others."""
    if len(parts) == 1:
        return parts[0]
    return " or ".join(f'label_replace({part}, "part", "{index}", "", "")' for index, part in enumerate(parts))


def _scaled(entry: Entry | None, expr: str) -> str:
    return f"{expr} * {entry.scale:g}" if entry is not None and entry.scale != 1 else expr


def _selector(entry: Entry, part: str = "") -> str:
    where = ",".join(f'{label}="{value}"' for label, value in entry.where)
    return f"{entry.name}{part}" + ("{" + where + "}" if where else "")


def _once(entry: Entry, inner: str) -> str:
    return f"max without ({', '.join(entry.copies)}) ({inner})" if entry.copies else inner
