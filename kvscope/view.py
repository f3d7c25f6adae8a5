"""The frozen state a dashboard panel gets: computed once a tick by the session, never by a panel."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvscope.finding import Diagnosis, Finding
from kvscope.signals.reading import Missing, Reading


@dataclass(frozen=True, slots=True)
class Headline:
    """One number of the header strip beside its baseline; ``change`` is relative, or points for shares."""

    name: str
    label: str
    now: Reading | Missing
    baseline: Reading | Missing | None = None
    change: float | None = None
    better: int = 0
    """+1 when up is good, -1 when down is good, 0 when it depends."""
    in_points: bool = False
    """``change`` is a difference of shares (0.05 is 5 points) and not a relative change."""
    sure: bool = False
    """The change is outside the errors of both readings and big enough to matter."""


@dataclass(frozen=True, slots=True)
class Share:
    """One part of a token's time: ``share`` of the decode step 0..1; Missing when the engine does not say."""

    name: str
    label: str
    share: float | Missing
    baseline: float | None = None
    seconds_per_token: float | None = None


@dataclass(frozen=True, slots=True)
class Trend:
    """A line over time: ``points`` are (seconds since the epoch, value), oldest first, evenly binned."""

    name: str
    label: str
    unit: str
    points: tuple[tuple[float, float], ...] | Missing
    target: float | None = None
    baseline: float | None = None
    """Mean over the baseline segment, when there is one."""
    signals: tuple[str, ...] = ()
    """Signals this line shows: a finding that judged one of them opens with this chart."""
    bin_s: float = 1.0


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Layers × time. ``rows[layer][column]`` is bytes (None: no sample in that bin); columns share ``times``."""

    label: str
    unit: str
    times: tuple[float, ...]
    rows: tuple[tuple[float | None, ...], ...] | Missing


@dataclass(frozen=True, slots=True)
class Span:
    """A named segment on the time axis."""

    name: str
    start_s: float
    end_s: float
    is_baseline: bool = False
    is_current: bool = False


@dataclass(frozen=True, slots=True)
class Trial:
    """An applied experiment waiting for enough data to be judged: ``have_s`` of ``need_s`` seconds are there."""

    finding_id: str
    change: str
    have_s: float
    need_s: float


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under columns of (heading, unit); a cell is text, a number in its column's unit, or None when unknown."""

    columns: tuple[tuple[str, str], ...] = ()
    rows: tuple[tuple[float | str | None, ...], ...] | Missing = ()
    told: tuple[str, ...] = ()
    """Lines a person should read above the rows."""


@dataclass(frozen=True, slots=True)
class Page:
    """What one screen beside the overview shows: numbers, each beside its baseline, and a table."""

    name: str
    facts: tuple[Headline, ...] = ()
    table: Table | None = None


@dataclass(frozen=True, slots=True)
class View:
    """Everything the dashboard shows at one tick."""

    target: str
    kind: str
    now_s: float
    alive: bool
    paused: bool = False
    recording: str = ""
    status: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    headlines: tuple[Headline, ...] = ()
    accounting: tuple[Share, ...] = ()
    trends: dict[str, Trend] = field(default_factory=dict)
    layers: HeatMap | None = None
    segments: tuple[Span, ...] = ()
    diagnosis: Diagnosis | None = None
    notices: tuple[str, ...] = ()
    can_apply: bool = False
    knobs: dict[str, str] = field(default_factory=dict)
    ended: bool = False
    token_time: Headline | None = None
    """Seconds of decode per output token, the whole of which ``accounting`` shows the parts."""
    request_path: tuple[Share, ...] = ()
    """Queue, prefill and decode as shares of a request's time, for engines that say no more than that."""
    request_time: Headline | None = None
    """Seconds from arrival to last token, the whole of which ``request_path`` shows the parts."""
    window: tuple[float, float] = (0.0, 1.0)
    """Start and end of the charts' time axis, seconds since the epoch."""
    stale_s: float = 0.0
    """Seconds since the newest sample, for a live source."""
    trial: Trial | None = None
    playbooks: int = 0
    """How many playbooks the diagnosis asks."""
    page: Page | None = None
    """The open screen's own data; None on the overview. Headlines and accounting are computed for the overview only."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Findings worth showing, first things first."""
        return self.diagnosis.findings if self.diagnosis else ()
