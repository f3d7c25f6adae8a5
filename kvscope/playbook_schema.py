"""The shape of a playbook: what one YAML file says, as frozen objects. The reading is in ``kvscope.playbook``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kvscope.advice import Fix
from kvscope.checks import Check

SCHEMA = 1
Status = Literal["trial", "stable", "retired"]
GainKind = Literal["remove_share", "fit_more", "run_waiting", "grow_batch", "read_less", "undo_change", "nothing"]
Triage = Literal[
    "trust", "quality", "host", "transfer", "admission", "preemption", "prefix", "kernel", "load", "notice"
]
"""The order in which causes are asked for; it decides between findings that are equally strong."""


@dataclass(frozen=True, slots=True)
class Compare:
    """Which segments are compared by default, and the tags that must ``same``-ly hold in both."""

    baseline: str = ""
    current: str = ""
    same: tuple[str, ...] = ()
    optional: bool = False
    """Judge the rule on one segment where there is no second; what compares is then unknown."""


@dataclass(frozen=True, slots=True)
class Cause:
    """The cause in words; it holds when all ``checks`` do and, where ``any`` has checks, at least one of these."""

    says: str
    slug: str
    checks: tuple[Check, ...]
    any: tuple[Check, ...] = ()


@dataclass(frozen=True, slots=True)
class RivalRule:
    """Another cause; excluded when all of ``excluded_when`` hold. ``look`` is the playbook that investigates it."""

    name: str
    says: str
    excluded_when: tuple[Check, ...]
    look: str = ""


@dataclass(frozen=True, slots=True)
class GainRule:
    """How the gain is estimated (see ``kvscope.gain``) and from which signal; ``of`` says what it is a factor on.

    ``remaining`` is the part of the cost expected to stay after the experiment, 0 to 1, taken of the share
    ``remaining_of`` where that is not all of the signal; ``wasted_share`` the part of the cost that is paid for
    nothing, and goes. ``pool_usage`` bounds what may fit. A batch grows by ``batch_growth``, at most
    ``growth_limit`` times in the experiment (0: no limit), and ``per_token_share`` is the share of time that it
    leaves as it is. ``also_replaces`` is a share beside the cause's that the experiment replaces too, so that the
    bound reaches it. ``measured_by`` is the signal by which the gain can be measured afterwards, which gets
    ``better`` by going up or down (``measured_by_rise``, ``measured_by_fall``); empty where none is that gain.
    """

    kind: GainKind
    signal: str
    of: str
    remaining: float = 0.0
    measured_by: str = ""
    better: Literal["up", "down", ""] = ""
    remaining_of: str = ""
    pool_usage: str = ""
    wasted_share: str = ""
    batch_growth: str = ""
    growth_limit: float = 0.0
    per_token_share: str = ""
    also_replaces: str = ""


@dataclass(frozen=True, slots=True)
class ExperimentRule:
    """One change, what is held, and the checks that must hold afterwards if the cause is right."""

    change: str
    hold: tuple[str, ...]
    run: str
    set: tuple[tuple[str, str], ...]
    predict: tuple[Check, ...]


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a check's threshold comes from."""

    source: Literal["measured", "vendor", "literature", "arithmetic", "judgement"]
    says: str


@dataclass(frozen=True, slots=True)
class Playbook:
    """One rule, with everything its file says."""

    id: str
    title: str
    status: Status
    compare: Compare | None
    symptom: tuple[Check, ...]
    cause: Cause
    rivals: tuple[RivalRule, ...]
    gain: GainRule | None
    experiment: ExperimentRule | None
    fix: tuple[Fix, ...]
    tests: tuple[tuple[str, tuple[str, ...]], ...]
    notes: str
    thresholds: dict[str, Provenance]
    path: Path
    triage: Triage = "kernel"

    def checks(self) -> tuple[Check, ...]:
        """Every check of the rule but the predictions, symptom first."""
        rivals = [check for rival in self.rivals for check in rival.excluded_when]
        return (*self.symptom, *self.cause.checks, *self.cause.any, *rivals)

    def signals(self) -> tuple[str, ...]:
        """Every signal the rule reads, in reading order, once each."""
        reads = [check.signal for check in self.checks()]
        if self.gain:
            reads.append(self.gain.signal)
        if self.experiment:
            reads += [check.signal for check in self.experiment.predict]
        return tuple(dict.fromkeys(reads))
