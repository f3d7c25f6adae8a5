"""A playbook as one alert: symptom, cause and the rivals that can be excluded, as expressions over recorded signals;
and the page names of one engine as PromQL selectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvscope.checks import Check
from kvscope.finding import NOTICE
from kvscope.playbook_schema import Playbook
from kvscope.signals.promql import promql
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


@dataclass(frozen=True, slots=True)
class Alert:
    """What fires, the signals it reads, and rivals that are left open because nothing on the page excludes them."""

    rule: Playbook
    condition: str
    signals: tuple[str, ...]
    open_rivals: tuple[str, ...]


def recorded(signal: str) -> str:
    """Return the name of the recording rule of a signal."""
    return f"kvscope:{signal}"


def alerts(playbooks: Sequence[Playbook], engine: str) -> tuple[list[Alert], dict[str, str]]:
    """Return the playbooks that can be said, and for each of the others why not."""
    names, found, left = PageNames(engine), [], dict[str, str]()
    for rule in playbooks:
        one = _alert(rule, names)
        if isinstance(one, Alert):
            found.append(one)
        else:
            left[rule.id] = one
    return found, left


def _alert(rule: Playbook, names: PageNames) -> Alert | str:
    if rule.triage == NOTICE:
        return "it tells what is worth knowing, and no fault"
    if rule.compare is not None:
        return "it compares two segments, and Prometheus knows none"
    needed = [*rule.symptom, *rule.cause.checks]
    unsaid = [check.signal for check in needed if promql(check.signal, names) is None]
    if unsaid:
        return f"{', '.join(dict.fromkeys(unsaid))} cannot be read from this engine's page by PromQL"
    some = [check for check in rule.cause.any if promql(check.signal, names)]
    if rule.cause.any and not some:
        return "none of the checks of its cause can be read from this engine's page by PromQL"
    excluded = [rival for rival in rule.rivals if all(promql(check.signal, names) for check in rival.excluded_when)]
    checks = [*needed, *(check for rival in excluded for check in rival.excluded_when)]
    parts = [_compared(check) for check in checks]
    if some:
        parts.append("(" + " or ".join(_compared(check) for check in some) + ")")
    signals = tuple(dict.fromkeys(check.signal for check in [*checks, *some]))
    rest = tuple(rival.says for rival in rule.rivals if rival not in excluded)
    return Alert(rule, " and ".join(dict.fromkeys(parts)), signals, rest)


def _compared(check: Check) -> str:
    return f"({recorded(check.signal)} {check.sense} {check.threshold:g})"
