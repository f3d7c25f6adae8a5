"""What a person can ask of a session, as values: a dashboard sends them, ``Session.do`` obeys and answers in words."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class MarkBaseline:
    """What was seen so far becomes the baseline, and a segment starts: ``name``, by default "after"."""

    name: str = ""


@dataclass(frozen=True, slots=True)
class NextBaseline:
    """Compare with the segment before the present baseline, going round."""


@dataclass(frozen=True, slots=True)
class Diagnose:
    """Ask every playbook now."""


@dataclass(frozen=True, slots=True)
class Apply:
    """Set what the finding's experiment sets, and check its prediction."""

    finding: str
    name: str = "after"


@dataclass(frozen=True, slots=True)
class Record:
    """Write everything into ``path`` (by default named by the time), or stop."""

    path: Path | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """Compute the numbers of that screen: ``NAME``, ``NAME/WHAT is opened``, or ``replica/NAME`` for one replica."""

    screen: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Stand still, or go on."""


@dataclass(frozen=True, slots=True)
class Scrub:
    """Go back (negative) or forward in time."""

    steps: int


@dataclass(frozen=True, slots=True)
class Seek:
    """Show a moment, None for the newest sample; ``centre``: in the middle of the window."""

    time_s: float | None = None
    centre: bool = False


@dataclass(frozen=True, slots=True)
class Zoom:
    """Show a longer (positive) or shorter stretch of time."""

    steps: int


@dataclass(frozen=True, slots=True)
class Overlay:
    """Draw the baseline's curves under the current ones, or no longer."""


@dataclass(frozen=True, slots=True)
class SetKnob:
    """Turn a knob of the built-in engine."""

    knob: str
    value: str


@dataclass(frozen=True, slots=True)
class ToggleFault:
    """Start a fault of the built-in engine, or end it; ``on``: it is the one that is on."""

    fault: str
    on: bool = False
    says: str = ""
    """What it does, to be read before it is started."""


@dataclass(frozen=True, slots=True)
class ResetKnobs:
    """Put every setting back to what it was at the first look."""


Order = (
    MarkBaseline
    | NextBaseline
    | Diagnose
    | Apply
    | Record
    | Look
    | Pause
    | Scrub
    | Seek
    | Zoom
    | Overlay
    | SetKnob
    | ToggleFault
    | ResetKnobs
)
