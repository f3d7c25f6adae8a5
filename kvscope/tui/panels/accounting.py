"""Token-time accounting, always on screen: the picture everything else hangs on."""

from __future__ import annotations

from textual.app import ComposeResult

from kvscope.signals.reading import Missing, Reading
from kvscope.tui.panels._base import Panel
from kvscope.tui.widgets.stacked_bar import StackedBar
from kvscope.view import Share, View


class AccountingPanel(Panel):
    TITLE = "Where one output token's time goes"
    ORDER = 3
    SLOT = "top"
    READS = ("accounting", "token_time", "request_path", "request_time")

    def compose(self) -> ComposeResult:
        yield StackedBar()

    def show(self, view: View) -> None:
        total, parts, title = view.token_time, view.accounting, self.TITLE
        if _unknown(parts) and not _unknown(view.request_path):
            total, parts = view.request_time, view.request_path
            title = "Where a request's time goes (this engine tells no more)"
        self.border_title = title
        now = total.now.value if total and isinstance(total.now, Reading) else None
        base = total.baseline.value if total and isinstance(total.baseline, Reading) else None
        self.query_one(StackedBar).show(parts, now, base)


def _unknown(parts: tuple[Share, ...]) -> bool:
    return all(isinstance(part.share, Missing) for part in parts)
