"""The built-in engine as a laboratory: turn a knob or start a fault, and watch what it does."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from textual.binding import Binding, BindingType

from kvscope.tui.palette import FIRST, SECOND
from kvscope.tui.panels._facts import FactsPanel
from kvscope.tui.panels._table import BesideTable, TablePanel
from kvscope.tui.screens._board import Board, BoardChart
from kvscope.tui.screens.confirm import ConfirmScreen
from kvscope.tui.screens.edit import EditScreen


class LabChart(BoardChart):
    TITLE = "Throughput and memory"
    CHARTS = ((("throughput", FIRST),), (("kv_memory", SECOND),))


class LabScreen(Board):
    TITLE = "Lab"
    KEY = "X"
    ORDER = 80
    HELP = "The built-in engine as a laboratory: turn a knob or start a fault with Enter, u puts everything back."
    TABLE = "Knobs and load: Enter changes"
    BESIDE = "Faults: Enter starts and ends"
    PANELS = (FactsPanel, LabChart, TablePanel, BesideTable)
    BINDINGS: ClassVar[list[BindingType]] = [Binding("u", "reset", "Put back", id="lab.reset")]

    def on_table_panel_chosen(self, event: TablePanel.Chosen) -> None:
        """A knob asks for its value, a fault whether to start it."""
        event.stop()
        lab = self.ordering.session.lab
        if event.which == "table":
            name = event.key

            def entered(value: str | None) -> None:
                if value is not None and value != str(event.row[1]):
                    self.ordering.order(partial(lab.change, {name: value}))

            self.app.push_screen(EditScreen(name, str(event.row[1])), entered)
            return
        says, sets = lab.describe(event.key)
        on = bool(event.row[0])

        def answered(yes: bool | None) -> None:
            if yes:
                self.ordering.order(partial(lab.toggle, event.key))

        detail = f"{says}\n" + "\n".join(f"{name} = {value}" for name, value in sets.items())
        question = f"End {event.key}, put back what it changed?" if on else f"Start {event.key}?"
        self.app.push_screen(ConfirmScreen(question, says if on else detail), answered)

    def action_reset(self) -> None:
        """Everything as it was at the first look."""
        self.ordering.order(self.ordering.session.lab.reset)
