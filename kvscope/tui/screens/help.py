"""Keys, panels, signs: everything needed to read the dashboard, on one page."""

from __future__ import annotations

import textwrap
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import Static

from kvscope.tui.keys import KEYS, idle, screen_keys
from kvscope.tui.palette import BAD, BRIGHT, DIM, GOOD, NOTE, TEXT, VERDICT_COLOUR, VERDICT_GLYPH
from kvscope.tui.screens.dialogs import Dimmed

_VERDICTS = {
    "confirmed": "an experiment showed it",
    "likely": "the cause holds and a number excludes every other",
    "possible": "the cause holds, another is open or unmeasured",
    "unexplained": "the symptom is real, this cause is not it",
    "needs_data": "it cannot be told yet",
    "refuted": "an experiment spoke against it",
}


_MOVES = (
    ("[ ]", "previous, next part of the overview alone"),
    ("f", "the part with the focus alone; again: all"),
    ("tab", "next part of the screen"),
    ("↑ ↓ enter", "choose and open a finding or a row"),
    ("← →", "read the charts at one moment (shift: faster)"),
    ("t", "of a finding: its next chart"),
    ("↑ ↓", "in the layer map: choose a layer"),
    ("< > ~", "in a table: sort by another column, turn the order round"),
    ("/", "in a table: only rows with a text"),
    ("g G", "first, last row or finding"),
    ("esc", "back"),
)


_KEY, _SAYS = 14, 20
"""Columns of a key and of what it does: two such columns and a gap fit a terminal of 80."""


class HelpScreen(Dimmed[None]):
    """Closes on any of the keys that close things."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,q,enter", "back", "Back"),
        Binding("j", "scroll(1)", "Down", show=False),
        Binding("k", "scroll(-1)", "Up", show=False),
    ]

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="help"), Horizontal():
            yield Static(self.keys())
            yield Static(self.signs())

    def on_mount(self) -> None:
        self.query_one("#help").border_title = "Help"
        self.query_one("#help").border_subtitle = "Esc closes"

    def keys(self) -> Text:
        """What the keys do on this target and on the screen beneath."""
        text, view = Text(), getattr(self.app, "view", None)
        offered = set(view.offered) if view is not None and view.offered else None
        _head(text, "KEYS", first=True)
        for key in KEYS:
            if key.id not in idle(view):
                _row(text, key.display or key.keys, f"{key.title}: {key.says[0].lower()}{key.says[1:]}")
        _head(text, "SCREENS")
        for key in screen_keys():
            if offered is None or key.id.removeprefix("screen.") in offered:
                _row(text, key.keys, f"{key.title}: {key.says[0].lower()}{key.says[1:]}")
        return text

    def signs(self) -> Text:
        """How to move, and what signs mean."""
        text = Text()
        below = self.app.screen_stack[self.app.screen_stack.index(self) - 1] if self in self.app.screen_stack else None
        tables = below is None or any(panel.is_on_screen for panel in below.query("TablePanel"))
        _head(text, "MOVING", first=True)
        for keys, what in _MOVES:
            if tables or not what.startswith("in a table"):
                _row(text, keys, what)
        _head(text, "VERDICTS")
        for verdict, meaning in _VERDICTS.items():
            sign = VERDICT_GLYPH[verdict]  # type: ignore[index]
            _row(text, f"{sign} {verdict.replace('_', ' ')}", meaning, VERDICT_COLOUR[verdict])  # type: ignore[index]
        _head(text, "SIGNS")
        _row(text, "▲ ✓", "up, and that is good", GOOD)
        _row(text, "▼ ✗", "down, and that is bad", BAD)
        _row(text, "≈", "within the measuring error or too small to matter")
        _row(text, "⌀", "the mean over all of a recording that has ended")
        _row(text, "≤ ×1.5", "what mending it can bring at most")
        _row(text, "pt", "percentage points, for shares")
        _row(text, "▒ unaccounted", "step time that no probe explains")
        _row(text, "○ ?", "unknown: not 0, not fine", NOTE)
        return text

    def action_back(self) -> None:
        """To where it was opened from."""
        self.dismiss()

    def action_scroll(self, lines: int) -> None:
        """Move through the text."""
        self.query_one("#help").scroll_relative(y=lines, animate=False)


def _head(text: Text, title: str, first: bool = False) -> None:
    text.append(("" if first else "\n") + title + "\n", style=f"bold {DIM}")


def _row(text: Text, key: str, what: str, colour: str = BRIGHT) -> None:
    text.append(f"{key:<{_KEY}}", style=f"bold {colour}")
    text.append(f"\n{' ' * _KEY}".join(textwrap.wrap(what, _SAYS)) + "\n", style=TEXT)
