"""What is printed can be read back, and equals the signal: legends, tiles, vital signs, bars, on every screen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kvscope import screens, signals
from kvscope.format import scale_for
from kvscope.order import Look
from kvscope.playbook import load_all
from kvscope.session import Session
from kvscope.signals.reading import Missing, Reading
from kvscope.sources import open_target
from kvscope.tui.palette import FIRST
from kvscope.tui.panels.headlines import VitalLines
from kvscope.tui.widgets.line_chart import Curve, LineChart, Picture
from kvscope.view import Trend, View

CAPTURE = Path(__file__).parents[2] / "samples" / "captures" / "admission-limited" / "pages.jsonl.gz"
FACTORS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "%": 0.01, "ms": 1e-3, "µs": 1e-6, "s": 1.0, "B": 1.0, "KiB": 2.0**10}
FACTORS |= {"MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40}
NEAR = 0.06
"""A number is printed with two digits at least."""


def read_back(text: str) -> float:
    """The amount that a printed number with its unit says."""
    found = re.search(r"([−-]?\d+(?:\.\d+)?) ?([A-Za-zµ%]*)", text)
    assert found is not None, text
    unit = found[2] if found[2] in FACTORS else ""
    return float(found[1].replace("−", "-")) * FACTORS[unit]


@pytest.fixture(scope="module")
def session() -> Session:
    """A whole capture: nothing more comes, so every number is of all of it."""
    found = Session(open_target(str(CAPTURE), speed=None), load_all())
    found.poll()
    return found


def view_of(session: Session, screen: str) -> View:
    session.do(Look(screen))
    return session.poll()


def true_value(session: Session, name: str) -> float | None:
    found = signals.compute(name, session.store, session.store.segments[-1])
    return found.value if isinstance(found, Reading) else None


@pytest.mark.parametrize("width", [24, 34, 60, 110])
@pytest.mark.parametrize("screen", screens.discover())
def test_a_legend_says_the_signal_over_the_whole_recording(session: Session, screen: str, width: int) -> None:
    view = view_of(session, screen)
    for trend in view.trends.values():
        true = true_value(session, trend.name)
        if isinstance(trend.points, Missing) or not trend.points or true is None:
            continue
        legend = legend_of(trend, view, width)
        shown = read_back(legend.partition("⌀")[2])
        assert shown == pytest.approx(true, rel=NEAR, abs=rounding(true, trend.unit)), (trend.name, legend)


def legend_of(trend: Trend, view: View, width: int) -> str:
    chart = LineChart()
    chart.picture = Picture((Curve(trend, FIRST),), view.window, view.segments, ended=view.ended)
    return "".join(chart.draw(width, 8)[0].chars)


def rounding(value: float, unit: str) -> float:
    scale = scale_for(value, unit)
    return 0.51 * scale.factor * 10.0**-scale.decimals


def test_vital_signs_say_their_signals(session: Session) -> None:
    view = view_of(session, screens.OVERVIEW)
    assert view.vitals
    for vital in view.vitals:
        for name, value in vital.values:
            assert value == pytest.approx(true_value(session, name)), name
    lines = VitalLines()
    lines.vitals = view.vitals
    text = "\n".join("".join(row.chars) for row in lines.draw(80, len(view.vitals)))
    assert read_back(text.partition("running ")[2]) == pytest.approx(true_value(session, "running_requests"), rel=NEAR)
    assert read_back(text.partition("waiting ")[2]) == pytest.approx(true_value(session, "waiting_requests"), rel=NEAR)
    out = read_back(text.partition("tokens ")[2].replace(" tok/s", ""))
    assert out == pytest.approx(true_value(session, "generation_tokens_per_s"), rel=NEAR)


@pytest.mark.parametrize("screen", screens.discover())
def test_facts_say_their_signals(session: Session, screen: str) -> None:
    page = view_of(session, screen).page
    for fact in page.facts if page else ():
        if isinstance(fact.now, Reading):
            assert fact.now.value == pytest.approx(true_value(session, fact.name)), fact.name


def test_a_bar_and_the_text_beside_it_are_the_same_shares(session: Session) -> None:
    view = view_of(session, screens.OVERVIEW)
    shares = [part.share for part in view.request_path if not isinstance(part.share, Missing)]
    assert sum(shares) == pytest.approx(1.0)
    assert view.account is not None
    told = view.account.levels["requests"]
    assert told is not None
    bars = {part.name: part.share for part in view.request_path}
    assert bars["prefill"] == pytest.approx(told["prefill"], abs=0.05)


def test_what_is_far_below_the_top_of_an_axis_is_lifted_off_its_floor(session: Session) -> None:
    steps = [1.7e9 + at for at in range(60)]
    small = Trend("a", "small", "1/s", tuple((t, 38.0) for t in steps))
    large = Trend("b", "large", "1/s", tuple((t, 3000.0) for t in steps))
    chart = LineChart()
    chart.picture = Picture((Curve(small, FIRST), Curve(large, FIRST)), (steps[0], steps[-1]))
    rows = ["".join(row.chars) for row in chart.draw(60, 12)]
    drawn = [at for at, row in enumerate(rows[1:-1]) if any(0x2800 < ord(char) < 0x2900 for char in row)]
    assert len(drawn) == 2
    assert max(drawn) < len(rows) - 3
    assert any("log" in row for row in rows)
