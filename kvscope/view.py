"""The frozen state a dashboard panel gets: computed once a tick by the session, never by a panel."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvscope.account import Account
from kvscope.finding import Diagnosis, Finding
from kvscope.headroom import Room
from kvscope.signals.reading import Missing, Reading
from kvscope.state import State
from kvscope.vitals import Vital


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
    band: tuple[float | None, float | None] | None = None
    """Where a check that judged this line says yes: from and to, None for no end."""
    told: float | None = None
    """The signal over all of a segment that has ended, which the legend says; while it goes on, its newest point."""
    ghost: tuple[tuple[float, float], ...] = ()
    """The baseline segment's own points, moved to where the current segment starts; empty while not asked for."""


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Layers or buckets × time. ``rows[row][column]`` is in ``unit`` (None: no sample in that bin).

    Columns share ``times``; ``names`` are what the rows are of.
    """

    label: str
    unit: str
    times: tuple[float, ...]
    rows: tuple[tuple[float | None, ...], ...] | Missing
    names: tuple[str, ...] = ()


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
    """An applied experiment that cannot be judged yet: ``windows`` of samples are there, ``needed`` to tell."""

    finding_id: str
    change: str
    windows: int
    needed: int


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under columns of (heading, unit); a cell is text, a number in its column's unit, or None when unknown."""

    columns: tuple[tuple[str, str], ...] = ()
    rows: tuple[tuple[float | str | None, ...], ...] | Missing = ()
    told: tuple[str, ...] = ()
    """Lines a person should read above the rows."""
    keys: tuple[str, ...] = ()
    """What each row opens, in the order of ``rows``; empty where rows open nothing."""


@dataclass(frozen=True, slots=True)
class Whole:
    """One amount and what it consists of: ``parts`` are (name, label, amount) in ``unit``, in the order drawn.

    ``parts`` is Missing where nobody says; ``told`` are lines that belong under it.
    """

    label: str
    unit: str
    parts: tuple[tuple[str, str, float], ...] | Missing = ()
    told: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """What one screen beside the overview shows: numbers, each beside its baseline, tables, charts of its own.

    ``about``: what of the screen is opened (a finding, a request), empty for none.
    """

    name: str
    facts: tuple[Headline, ...] = ()
    table: Table | None = None
    about: str = ""
    beside: Table | None = None
    """A second table."""
    wholes: tuple[Whole, ...] = ()
    charts: tuple[Trend, ...] = ()
    """The signals that the opened finding judged, each with the band in which its check says yes."""


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
    past: bool = False
    """The view is of an earlier moment than the newest sample: somebody paused or went back in time."""
    overlay: bool = False
    """The baseline's own curve lies under the current one."""
    only: str = ""
    """The one replica of a fleet that the numbers are of; empty for all."""
    state: State | None = None
    """How it does, in a word and a sentence."""
    account: Account | None = None
    """What limits it, as of the last diagnosis."""
    rooms: tuple[Room, ...] = ()
    """Every limit with the room that is left."""
    vitals: tuple[Vital, ...] = ()
    offered: tuple[str, ...] = ()
    """Screens that have something to show of this target; empty before the first view."""
    over: str = ""
    """The stretch of time that numbers are of, in words."""
    latencies: HeatMap | None = None
    """Times to the first token by bucket, over time."""
    page: Page | None = None
    """The open screen's own data; None on the overview. Headlines and accounting are computed for the overview only."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Findings worth showing, first things first."""
        return self.diagnosis.findings if self.diagnosis else ()
