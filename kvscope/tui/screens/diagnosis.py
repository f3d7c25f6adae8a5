"""Every finding, and for the chosen one the charts that made it fire, with band, onset and baseline."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from kvscope.finding import Finding
from kvscope.tui.panels._judged import JudgedPanel
from kvscope.tui.panels.findings import FindingList, FindingsPanel
from kvscope.tui.screens._board import Board
from kvscope.view import View


class DiagnosisScreen(Board):
    TITLE = "Diagnosis"
    KEY = "D"
    ORDER = 5
    HELP = "Every finding, and for the chosen one the charts that made it fire, with band, onset and baseline."
    PANELS = (FindingsPanel, JudgedPanel)
    STACKED = True
    BINDINGS: ClassVar[list[BindingType]] = [Binding("c", "turn", "Next chart", id="diagnosis.chart")]

    def take_focus(self) -> None:
        """The list first: its arrow keys choose the finding."""
        self.query_one(FindingList).focus()

    @property
    def finding(self) -> Finding | None:
        """The chosen one: what keys act on."""
        panel = next(iter(self.query(FindingsPanel)), None)
        return panel.chosen if panel is not None and panel.is_mounted else None

    def receive(self, view: View) -> None:
        """Without a finding there is nothing to chart."""
        judged = self.query_one(JudgedPanel)
        if judged.display != bool(view.findings):
            judged.display = bool(view.findings)
            self.on_resize()
        super().receive(view)

    def on_findings_panel_picked(self, event: FindingsPanel.Picked) -> None:
        """Another finding: its charts."""
        event.stop()
        self.open(event.finding.id)

    def action_turn(self) -> None:
        """The next chart."""
        self.query_one(JudgedPanel).action_turn()
