"""A yes-or-no question; the answer that changes nothing is the default."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Static

from kvscope.tui.palette import BRIGHT, DIM
from kvscope.tui.screens._dimmed import Dimmed


class ConfirmScreen(Dimmed[bool]):
    """Dismisses with True on y only."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes"),
        Binding("n,escape,enter", "answer(False)", "No"),
    ]

    def __init__(self, question: str, detail: str = "") -> None:
        super().__init__()
        self.question, self.detail = question, detail

    def compose(self) -> ComposeResult:
        with Vertical(id="confirm"):
            yield Static(f"[bold {BRIGHT}]{_plain(self.question)}[/]")
            if self.detail:
                yield Static(f"[{DIM}]{_plain(self.detail)}[/]", id="confirm-detail")
            yield Static(f"[bold {BRIGHT}]y[/] [{DIM}]yes[/]    [bold {BRIGHT}]n[/] [{DIM}]no[/]", id="confirm-keys")

    def action_answer(self, yes: bool) -> None:
        """Close with the answer."""
        self.dismiss(yes)


def _plain(text: str) -> str:
    return text.replace("[", "\\[")
