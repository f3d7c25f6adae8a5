"""One value to type; Escape changes nothing."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input, Static

from kvscope.tui.palette import BRIGHT, DIM
from kvscope.tui.screens._dimmed import Dimmed


class EditScreen(Dimmed[str | None]):
    """Dismisses with what was entered, None for no change. A number can also be a step: ``x2``, ``+50%``, ``-1``."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "No change")]

    def __init__(self, name: str, value: str) -> None:
        super().__init__()
        self.knob, self.value = name, value

    def compose(self) -> ComposeResult:
        with Vertical(id="confirm"):
            yield Static(f"[bold {BRIGHT}]{self.knob}[/]")
            yield Input(self.value, id="value", compact=True)
            yield Static(f"[{DIM}]Enter sets it, x2 or +50% or -1 is a step, Esc leaves it[/]", id="confirm-keys")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter."""
        self.dismiss(event.value.strip() or None)

    def action_leave(self) -> None:
        """Nothing changes."""
        self.dismiss(None)
