"""What lies over a screen: a question, a field. Behind it stands what was there, dimmed."""

from __future__ import annotations

from typing import ClassVar

from rich.color import Color as RichColor
from rich.segment import Segment
from rich.style import Style
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.color import Color
from textual.containers import Vertical
from textual.geometry import Region
from textual.screen import ModalScreen, ScreenResultType
from textual.strip import Strip
from textual.widgets import Input, Static

from kvscope.tui.palette import BRIGHT, DIM


class Dimmed(ModalScreen[ScreenResultType]):
    """Dims the screen behind it once. The toolkit would several times on opening, and at every tick: 50 ms each."""

    def __init__(self) -> None:
        super().__init__()
        self._behind: list[Strip] = []

    def render_lines(self, crop: Region) -> list[Strip]:
        """Rows of the picture taken when this opened, or when the terminal last changed its size."""
        width, height = self.size
        if len(self._behind) != height or (self._behind and self._behind[0].cell_length != width):
            self._behind = self._picture()
        return [strip.crop(crop.x, crop.right) for strip in self._behind[crop.y : crop.bottom]]

    def _picture(self) -> list[Strip]:
        below = self.app.screen_stack[self.app.screen_stack.index(self) - 1]
        tint, dimmed = self.styles.background, dict[Style | None, Style]()
        strips = [
            Strip(
                [
                    Segment(text, dimmed.get(style) or dimmed.setdefault(style, _dim(style, tint)))
                    for text, style, _ in strip
                ],
                strip.cell_length,
            ).adjust_cell_length(self.size.width)
            for strip in below._compositor.render_strips(self.size)
        ]
        for line_filter in self.get_line_filters():
            strips = [strip.apply_filter(line_filter, tint) for strip in strips]
        return strips


def _dim(style: Style | None, tint: Color) -> Style:
    plain = Style() if style is None else style.clear_meta_and_links()
    return plain + Style.from_color(_blend(plain.color, tint), _blend(plain.bgcolor, tint))


def _blend(colour: RichColor | None, tint: Color) -> RichColor | None:
    return None if colour is None else (Color.from_rich_color(colour) + tint).rich_color


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


class EditScreen(Dimmed[str | None]):
    """One value to type. Dismisses with what was entered, None for no change; ``hint`` says what else can be typed."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "No change")]

    def __init__(self, name: str, value: str, hint: str = "") -> None:
        super().__init__()
        self.asks, self.value, self.hint = name, value, hint

    def compose(self) -> ComposeResult:
        with Vertical(id="confirm"):
            yield Static(f"[bold {BRIGHT}]{_plain(self.asks)}[/]")
            yield Input(self.value, id="value", compact=True)
            yield Static(f"[{DIM}]Enter sets it, {self.hint}Esc leaves it[/]", id="confirm-keys")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter."""
        self.dismiss(event.value.strip())

    def action_leave(self) -> None:
        """Nothing changes."""
        self.dismiss(None)


def _plain(text: str) -> str:
    return text.replace("[", "\\[")
