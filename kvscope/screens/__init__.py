"""Screens, one file each, found by its name: which signals, charts and tables it shows, and what its rows open.

A screen says *what* is shown; it draws nothing and knows no terminal. It is read only while it is open.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module

from kvscope.discovery import module_names
from kvscope.order import Order
from kvscope.screens.reader import Reader
from kvscope.store import Store
from kvscope.view import Page, Table, Trend, View, Whole

OVERVIEW, LAB = "overview", "lab"
Cell = float | str | None


@dataclass(frozen=True, slots=True)
class Chart:
    """A framed part of a screen: one picture a tuple, each of signals that share a unit.

    It is left out while nothing of it is known. ``fallback``: and while another chart of the screen is.
    """

    title: str
    pictures: tuple[tuple[str, ...], ...]
    fallback: bool = False


@dataclass(frozen=True, slots=True)
class Key:
    """A key of one screen alone, and the order it gives."""

    key: str
    says: str
    order: Order


@dataclass(frozen=True, slots=True)
class Screen:
    """What a screen shows. ``layers``: the map of KV bytes per layer over time.

    ``table``, ``beside`` and ``wholes`` are a title and what reads it; ``judged`` are the charts of the opened finding.
    """

    title: str
    order: int
    help: str
    facts: tuple[str, ...] = ()
    charts: tuple[Chart, ...] = ()
    table: tuple[str, Callable[[Reader], Table]] | None = None
    beside: tuple[str, Callable[[Reader], Table | None]] | None = None
    wholes: tuple[str, Callable[[Reader], tuple[Whole, ...]]] | None = None
    empty: str = ""
    """What stands in place of ``wholes`` while nothing is opened."""
    layers: bool = False
    judged: Callable[[Reader], tuple[str, tuple[Trend, ...]]] | None = None
    """Which finding it is about, and its charts."""
    more: Callable[[Reader, View], View] | None = None
    """Adds what only this screen has to the view."""
    chosen: Callable[[str, str, tuple[Cell, ...]], Order | None] | None = None
    """(``table`` or ``beside``, the row's key, the row) → the order that Enter on it gives."""
    needs: tuple[str, ...] = ()
    """It is offered where any of these metrics was read; where nothing is named, always."""
    closes: bool = False
    """Rows stay opened until Escape."""
    keys: tuple[Key, ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        """Every signal that its charts draw, once each."""
        return tuple(dict.fromkeys(name for chart in self.charts for picture in chart.pictures for name in picture))


@cache
def discover() -> dict[str, Screen]:
    """Name → screen, in their order; the overview is the first."""
    found = {}
    for name in module_names(__path__):
        screen = getattr(import_module(f"{__name__}.{name}"), "SCREEN", None)
        if isinstance(screen, Screen):
            found[name] = screen
    return dict(sorted(found.items(), key=lambda pair: pair[1].order))


def offered(store: Store, can_apply: bool) -> tuple[str, ...]:
    """Names of the screens that have something to show of this target; the laboratory needs an engine to change."""
    found = []
    for name, screen in discover().items():
        told = not screen.needs or any(store.keys(metric) for metric in screen.needs)
        if told if name != LAB else can_apply:
            found.append(name)
    return tuple(found)


def numbers(path: str, reader: Reader, window_s: float) -> View:
    """A view with the numbers of a screen and nothing else; ``path`` is its name, or name/what of it is opened.

    The overview where there is no such screen.
    """
    name, _, reader.about = path.partition("/")
    screen = discover().get(name)
    if screen is None:
        name, screen = OVERVIEW, discover()[OVERVIEW]
    charts = reader.charts
    charts.move(reader.store, window_s, reader.end_s or None)
    view = View(
        target="",
        kind="",
        now_s=0.0,
        alive=True,
        trends={line: charts.trend(line, reader.store, reader.now, reader.was, reader.whole) for line in screen.lines},
        layers=charts.layers(reader.store) if screen.layers else None,
        window=charts.window,
    )
    about, judged = screen.judged(reader) if screen.judged else (reader.about, ())
    if name != OVERVIEW:
        page = Page(
            name,
            tuple(reader.fact(name, slow=True) for name in screen.facts),
            screen.table[1](reader) if screen.table else None,
            about,
            screen.beside[1](reader) if screen.beside else None,
            screen.wholes[1](reader) if screen.wholes else (),
            judged,
        )
        view = replace(view, page=page)
    return screen.more(reader, view) if screen.more else view
