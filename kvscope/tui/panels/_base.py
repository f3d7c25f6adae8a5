"""What every panel is: a title, a place, the parts of the View it reads, and ``show``."""

from __future__ import annotations

from typing import ClassVar, Literal

from rich.text import Text
from textual.containers import Vertical
from textual.widgets import Static

from kvscope.tui.widgets.canvas import Canvas
from kvscope.view import View

Slot = Literal["top", "story", "chart", "map", "page"]


class Panel(Vertical):
    """One part of the dashboard. It gets a frozen View and shows it; it never computes a number.

    ``SLOT``: ``top`` is always there; ``story``, ``chart`` and ``map`` share the body of a wide screen and take turns
    on a narrow one; ``page`` shows only when its key is pressed. ``READS`` names the fields of View that matter:
    ``show`` is called when one of them changed.
    """

    TITLE: ClassVar[str]
    ORDER: ClassVar[int]
    SLOT: ClassVar[Slot] = "chart"
    READS: ClassVar[tuple[str, ...]]
    HELP: ClassVar[str] = ""
    SHORT: ClassVar[str] = ""
    """Title on a narrow screen."""
    TITLED: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__(id=self.name_of(), classes=f"panel -{self.SLOT}")
        self._shown: tuple[object, ...] | None = None
        if self.TITLED:
            self.border_title = self.TITLE

    @classmethod
    def name_of(cls) -> str:
        """The panel's id: its file's name."""
        return cls.__module__.rpartition(".")[2]

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
