"""A session that stands still: it gives the view it holds, and notes what it was asked."""

from __future__ import annotations

from dataclasses import replace

from kvscope.order import Order, Pause
from kvscope.view import View


class StillSession:
    """Stands in for a Session in tests of the screen."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.asked: list[Order] = []

    def poll(self) -> View:
        return self.view

    def do(self, asked: Order) -> str:
        self.asked.append(asked)
        if isinstance(asked, Pause):
            self.view = replace(self.view, paused=not self.view.paused)
        return "Done"

    def close(self) -> None:
        pass
