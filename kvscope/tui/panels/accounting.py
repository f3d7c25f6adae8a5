"""Token-time accounting, always on screen: the picture everything else hangs on."""

from __future__ import annotations

from textual.app import ComposeResult

from kvscope.signals.reading import Missing, Reading
from kvscope.tui.panels._base import Panel
from kvscope.tui.widgets.stacked_bar import StackedBar
from kvscope.view import View


class AccountingPanel(Panel):
    TITLE = "Where one output token's time goes"
    ORDER = 3
    SLOT = "top"
    READS = ("accounting", "token_time", "request_path", "request_time")

    def compose(self) -> ComposeResult:
        yield StackedBar()

    def show(self, view: View) -> None:
        total, parts = view.token_time, view.accounting
        if all(isinstance(part.share, Missing) for part in parts) and any(
            not isinstance(part.share, Missing) for part in view.request_path
        ):
            total, parts = view.request_time, view.request_path
        self.border_title = (
            "Where a request's time goes (its engine tells no more)" if parts is view.request_path else self.TITLE
        )
        now = total.now.value if total and isinstance(total.now, Reading) else None
        base = total.baseline.value if total and isinstance(total.baseline, Reading) else None
        self.query_one(StackedBar).show(parts, now, base)
