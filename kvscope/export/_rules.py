"""A playbook as one alert: symptom, cause and the rivals that can be excluded, as expressions over recorded signals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvscope.checks import Check
from kvscope.export._names import PageNames
from kvscope.finding import NOTICE
from kvscope.playbook_schema import Playbook
from kvscope.signals.promql import promql


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
