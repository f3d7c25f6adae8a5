"""An experiment on a running built-in engine: baseline, control, change, and back again, then the judgement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kvscope.diagnose import diagnose
from kvscope.errors import NotEnoughData, UsageError, nearest
from kvscope.finding import Diagnosis, Finding
from kvscope.knobs import is_step, resolve
from kvscope.laboratory import Laboratory, Length
from kvscope.playbook_schema import Playbook
from kvscope.store import Segment
from kvscope.verification import Verification, verify_change

SHOWN = ("likely", "possible")
SETTLE_S = 15.0
"""At the longest: requests of the old settings leave, and what a new pool lost is recomputed."""


@dataclass(frozen=True, slots=True)
class Setup:
    """``finding`` is an id, or empty for the strongest that turns a knob; ``knobs`` replace what its playbook sets.

    ``keep`` leaves the change in place, which gives up the stretch that would show drift.
    """

    length: Length
    finding: str = ""
    knobs: Mapping[str, str] | None = None
    keep: bool = False


def run(lab: Laboratory, playbooks: Sequence[Playbook], setup: Setup, prefix: str = "verify") -> Verification:
    """Measure, change one thing, measure again; the engine's settings are put back unless they are to be kept.

    NotEnoughData when nothing was found to verify, UsageError when what was found turns no knob.
    """
    before = lab.stretch(f"{prefix}-baseline", setup.length)
    found = diagnose(lab.store, playbooks, lab.source.describe(), current=before.name, include_silent=True)
    finding = choose(found, playbooks, setup.finding, knobs=setup.knobs is None)
    rule = rule_of(playbooks, finding.id)
    sets = dict(setup.knobs if setup.knobs is not None else finding.experiment.set if finding.experiment else ())
    controls = [lab.stretch(f"{prefix}-control", setup.length)]
    wanted, former = settings(lab, sets)
    try:
        after = changed(lab, f"{prefix}-change", wanted, setup.length)
        if not setup.keep:
            controls.append(changed(lab, f"{prefix}-back", former, setup.length))
    except BaseException:
        # Whatever ends an experiment early, the engine is not left changed.
        lab.control.set(former, f"{prefix}-undone")
        raise
    return verify_change(finding, rule, lab.store, before, after, controls)


def choose(found: Diagnosis, playbooks: Iterable[Playbook], wanted: str = "", *, knobs: bool = True) -> Finding:
    """Return the finding asked for, or the strongest whose experiment turns a knob (any experiment without ``knobs``).

    A playbook that sees nothing can be asked for by name all the same: so a change is tried on a healthy engine.
    """
    if wanted:
        rule_of(playbooks, wanted)
        finding = next(one for one in found.findings if one.id == wanted)
        if knobs and not _turns(finding, playbooks):
            raise UsageError(f"{wanted}: its experiment turns no knob of this engine; name one with --set NAME=VALUE")
        return finding
    shown = [one for one in found.findings if one.verdict in SHOWN]
    for one in shown:
        if _turns(one, playbooks) or (not knobs and one.experiment is not None):
            return one
    if shown:
        names = ", ".join(one.id for one in shown)
        raise UsageError(f"{names}: found, but no experiment of theirs turns a knob; name one with --set NAME=VALUE")
    raise NotEnoughData("nothing was found to verify; name a playbook with --finding")


def rule_of(playbooks: Iterable[Playbook], name: str) -> Playbook:
    """Return a playbook; UsageError names the nearest."""
    rules = {rule.id: rule for rule in playbooks}
    if name not in rules:
        raise UsageError(f"--finding {name!r}: no such playbook{nearest(name, rules)}")
    return rules[name]


def _turns(finding: Finding, playbooks: Iterable[Playbook]) -> bool:
    rule = rule_of(playbooks, finding.id)
    return bool(rule.experiment and rule.experiment.set)


def settings(lab: Laboratory, sets: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the values to set, steps such as ``x2`` worked out, and the present ones to go back to."""
    now = lab.control.knobs()
    wanted = {name: resolve(now.get(name, ""), value) if is_step(value) else value for name, value in sets.items()}
    return wanted, {name: now[name] for name in wanted if name in now}


def changed(lab: Laboratory, name: str, knobs: Mapping[str, str], length: Length) -> Segment:
    """Turn knobs, wait until what they found has left, and measure."""
    running = int(lab.count("sched.running") + lab.count("sched.waiting"))
    lab.control.set(knobs, f"{name}-settling")
    lab.settle(f"{name}-settling", Length(length.steps // 4, 0.5, SETTLE_S), running)
    return lab.stretch(name, length)
