"""What every panel is: a title, a place, the parts of the View it reads, and ``show``."""

from __future__ import annotations

from typing import ClassVar, Literal

from rich.text import Text
from textual.binding import Binding
from textual.containers import Vertical
from textual.widgets import Static

from kvscope.tui.widgets.canvas import Canvas
from kvscope.view import View

Slot = Literal["top", "story", "chart", "page"]


CURSOR_KEYS = (
    Binding("left", "cursor(-1)", "Earlier", show=False, id="cursor.left"),
    Binding("right", "cursor(1)", "Later", show=False, id="cursor.right"),
    Binding("shift+left", "cursor(-10)", "Much earlier", show=False),
    Binding("shift+right", "cursor(10)", "Much later", show=False),
)
"""Of every panel with a time axis."""


class Panel(Vertical):
    """One part of the dashboard. It gets a frozen View and shows it; it never computes a number.

    ``SLOT``: ``top`` is always there; ``story`` and ``chart`` share the body of a wide screen, one by one on a narrow
    one; ``page`` is part of a board, or shows alone. ``READS`` names the fields of View that matter: ``show`` is called
    when one of them changed.
    """

    TITLE: ClassVar[str]
    SLOT: ClassVar[Slot] = "page"
    READS: ClassVar[tuple[str, ...]]
    HELP: ClassVar[str] = ""
    TITLED: ClassVar[bool] = True

    def __init__(self, name: str = "", title: str = "", slot: Slot | None = None) -> None:
        self.slot: Slot = slot or self.SLOT
        super().__init__(id=name or type(self).__name__.removesuffix("Panel").lower(), classes=f"panel -{self.slot}")
        self.title = title or self.TITLE
        self._shown: tuple[object, ...] | None = None
        if self.TITLED:
            self.border_title = self.title

    def receive(self, view: View) -> None:
        """Show ``view`` unless everything this panel reads is as it was, or the panel is hidden."""
        reads = tuple(getattr(view, name) for name in self.READS)
        if reads != self._shown and self.display:
            self._shown = reads
            try:
                self.show(view)
            except Exception as error:  # one panel that fails must not take the others down
                for canvas in self.query(Canvas):
                    canvas.fail(error)
                for page in self.query(Static):
                    page.update(Text(f"not drawn: {type(error).__name__}: {error}"))

    def forget(self) -> None:
        """Show the next view even if it is equal to the last one."""
        self._shown = None

    def show(self, view: View) -> None:
        """Put ``view`` on screen; must accept an empty view and a view in which everything is Missing."""
        raise NotImplementedError

    def move_cursor(self, columns: int) -> None:
        """Move the reading cursor of the screen this panel is on."""
        read_at = getattr(self.screen, "read_at", None)
        if read_at is not None:
            read_at(columns)

    def point(self, time_s: float | None) -> None:
        """The reading cursor moved to ``time_s``; panels without a time axis ignore it."""
