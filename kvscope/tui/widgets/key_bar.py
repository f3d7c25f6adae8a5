"""The last line: what the keys of this screen do. Where not all fit some are left out, help and quit never."""

from __future__ import annotations

from textual import events
from textual.binding import Binding
from textual.screen import Screen

from kvscope.tui.keys import idle
from kvscope.tui.palette import DIM, FIRST, paint
from kvscope.tui.widgets.canvas import Canvas, Line

_KEPT = ("help", "quit")
_GAP = 2
_PALETTE = "palette"


class KeyBar(Canvas):
    """Draws the bindings that are to be shown; a click on one presses its key."""

    def __init__(self) -> None:
        super().__init__(id="keys")
        self._places: list[tuple[int, int, str]] = []

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._changed)

    def _changed(self, screen: Screen[object]) -> None:
        if self.is_attached and screen is self.screen:
            self.redraw()

    def draw(self, width: int, height: int) -> list[Line]:
        self._places.clear()
        row, x = Line(width), 1
        for binding in self._fitting(width - 1):
            self._put(row, x, binding, binding.description)
            x += self._written(binding) + _GAP
        palette = self.screen.active_bindings.get(self.app.COMMAND_PALETTE_BINDING)
        if palette is not None:
            at = width - len(self.app.get_key_display(palette.binding)) - len(_PALETTE) - 2
            if at >= x:
                self._put(row, at, palette.binding, _PALETTE)
        return [row]

    def _put(self, row: Line, x: int, binding: Binding, says: str) -> None:
        key = self.app.get_key_display(binding)
        row.put(x, key, paint(FIRST, bold=True))
        row.put(x + len(key) + 1, says, paint(DIM))
        self._places.append((x, x + len(key) + 1 + len(says), binding.key))

    def _fitting(self, room: int) -> list[Binding]:
        """Every action once, in the order declared, without the last that make it too wide."""
        once: dict[str, Binding] = {}
        useless = idle(getattr(self.app, "view", None))
        for active in self.screen.active_bindings.values():
            if active.binding.show and active.binding.id not in useless:
                once.setdefault(active.binding.action, active.binding)
        shown = list(once.values())
        while sum(self._written(one) + _GAP for one in shown) - _GAP > room:
            spare = [one for one in shown if one.action not in _KEPT]
            if not spare:
                break
            shown.remove(spare[-1])
        return shown

    def _written(self, binding: Binding) -> int:
        return len(self.app.get_key_display(binding)) + 1 + len(binding.description)

    def on_click(self, event: events.Click) -> None:
        """The word under the mouse."""
        key = next((key for start, end, key in self._places if start <= event.x < end), None)
        if key is not None:
            self.app.simulate_key(key)
