"""What a playbook concluded, with everything needed to check it: the object every view shows and JSON carries.

Verdicts: ``silent`` symptom absent; ``needs_data`` it cannot be told; ``unexplained`` symptom real, this cause is not
it; ``possible`` cause holds, a rival is open or unmeasured; ``likely`` cause holds, every rival excluded by a number;
after an experiment ``confirmed`` or ``refuted``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from kvscope.signals.significance import Answer

if TYPE_CHECKING:
    from kvscope.account import Account, Change
    from kvscope.vitals import Vital

RivalState = Literal["excluded", "open", "unmeasured"]
Verdict = Literal["silent", "needs_data", "unexplained", "possible", "likely", "confirmed", "refuted"]

VERDICT_ORDER: tuple[Verdict, ...] = (
    "confirmed",
    "likely",
    "possible",
    "unexplained",
    "needs_data",
    "refuted",
    "silent",
)
"""Strongest first: the order findings are shown in before their gain decides."""

FAIL_ON: tuple[Verdict, ...] = ("confirmed", "likely", "possible", "unexplained")
"""Values ``--fail-on`` takes; a finding counts when its verdict stands at or before the given one."""
NOTICE = "notice"
"""The triage of what is worth knowing and no fault: it is said in a line, and is not shown as a finding."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One check with its numbers. ``change``: relative (0.1 = +10 %) or in ``points`` of a share, None when absent."""

    check: str
    signal: str
    says: str
    answer: Answer
    value: float | None = None
    error: float | None = None
    unit: str = ""
    baseline: float | None = None
    baseline_error: float | None = None
    change: float | None = None
    change_error: float | None = None
    source: str = ""
    batches: int = 0
    role: Literal["symptom", "cause", "prediction"] = "cause"
    missing: str = ""
    remedy: str = ""
    points: bool = False


@dataclass(frozen=True, slots=True)
class Rival:
    """Another cause, and the number that excludes it or the reason that it stays in play."""

    name: str
    says: str
    state: RivalState
    evidence: Evidence
    look: str = ""


@dataclass(frozen=True, slots=True)
class Gain:
    """What removing the cause would give: ``expected`` and an upper ``bound`` as factors on ``of`` (1.0 = nothing)."""

    of: str
    expected: float | None
    bound: float | None
    reads: str = ""
    basis: Literal["measured", "inferred"] = "measured"
    measured: float | None = None
    measured_error: float | None = None
    """What an experiment brought, and three standard errors of it."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """One change with the rest held, and what must then be seen. ``set`` are knobs of the built-in engine."""

    change: str
    hold: tuple[str, ...] = ()
    run: str = ""
    set: tuple[tuple[str, str], ...] = ()
    predict: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """A playbook's verdict on a target."""

    id: str
    title: str
    verdict: Verdict
    slug: str
    cause: str
    evidence: tuple[Evidence, ...] = ()
    rivals: tuple[Rival, ...] = ()
    gain: Gain | None = None
    experiment: Experiment | None = None
    fix: tuple[str, ...] = ()
    explains: tuple[str, ...] = ()
    explained_by: str = ""
    notes: str = ""
    onset_s: float | None = None
    baseline: str = ""
    current: str = ""
    triage: str = ""
    """Where the cause stands in the order of triage; it decides between findings that are equally strong."""
    persists: bool = False
    """The symptom was there in the earlier segment already: it is not what changed."""
    replicas: tuple[str, ...] = ()
    """Of a fleet: those whose own figures show the symptom, where it is not all of them."""
    turns: tuple[tuple[str, str], ...] = ()
    """Settings that the fixes turn, and where to: what two findings must not turn apart."""

    @property
    def headline(self) -> str:
        """The title, with the replicas it is about."""
        if not self.replicas:
            return self.title
        more = len(self.replicas) - _NAMED_REPLICAS
        names = ", ".join(self.replicas[:_NAMED_REPLICAS]) + (f" and {more} more" if more > 0 else "")
        return f"{self.title} ({'replica' if len(self.replicas) == 1 else 'replicas'} {names})"


_NAMED_REPLICAS = 3


@dataclass(frozen=True, slots=True)
class Unknown:
    """A signal that a playbook asked for and nobody supplied."""

    signal: str
    reason: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Near:
    """A rule that is silent, and would not be if ``signal`` lay ``distance`` of its bound further on."""

    id: str
    title: str
    signal: str
    value: float
    bound: float
    unit: str
    distance: float


@dataclass(frozen=True, slots=True)
class Light:
    """Something that would let ``rules`` speak which cannot now, by itself."""

    way: str
    rules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """What would let ``rules`` speak which cannot now: one way, or two that are needed together."""

    ways: tuple[str, ...]
    rules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A rule that cannot speak, and what it lacks: of each lack the ways to supply it, one of which is enough."""

    rule: str
    needs: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Coverage:
    """Of ``rules`` so many were ``judged``; ``near`` ones almost fired; ``lights`` would let more of them speak."""

    rules: int
    judged: int
    near: tuple[Near, ...] = ()
    lights: tuple[Light, ...] = ()
    waiting: tuple[Waiting, ...] = ()


@dataclass(frozen=True, slots=True)
class SegmentSummary:
    """A stretch of a stream in which nothing was reconfigured, with the signals read from it."""

    name: str
    start_s: float
    end_s: float
    tags: dict[str, str] = field(default_factory=dict)
    signals: dict[str, tuple[float, float, str]] = field(default_factory=dict)
    """name → (value, error, unit)"""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything one diagnosis says: what was read, what was found, what could not be known."""

    source: dict[str, str]
    segments: tuple[SegmentSummary, ...]
    findings: tuple[Finding, ...]
    unknown: tuple[Unknown, ...] = ()
    notices: tuple[str, ...] = ()
    account: Account | None = None
    """What limits the engine in the segment that was judged; no finding, and it decides no exit code."""
    account_before: Account | None = None
    """The same of the segment it was compared with."""
    coverage: Coverage | None = None
    """How far it reaches; None before any rule was asked."""
    vitals: tuple[Vital, ...] = ()
    """The engine's vital signs in the segment that was judged."""
    down: str = ""
    """Why what is watched says nothing any more though nobody ended it; then nothing is called well."""
    account_change: Change | None = None
    """What physics says of a change of KV bytes between the two; None where they did not change."""


def fails(finding: Finding, fail_on: Verdict) -> bool:
    """Whether a finding is as strong as ``fail_on`` or stronger, and a fault: then a diagnosis ends in exit code 1."""
    counting = VERDICT_ORDER[: VERDICT_ORDER.index(fail_on) + 1]
    return finding.verdict in counting and finding.triage != NOTICE


def unanswered(found: Diagnosis) -> str:
    """Why a diagnosis answers nothing, so that no absence of findings is taken for health; empty where it does."""
    if found.down:
        return found.down
    judged = found.coverage is None or found.coverage.judged or any(f.verdict != "needs_data" for f in found.findings)
    return "" if judged else "no rule could be judged"
