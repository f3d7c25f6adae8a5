"""Moving between screens, and keeping what is on them."""

from __future__ import annotations

from textual._styles_cache import StylesCache
from textual.await_complete import AwaitComplete

from kvscope.tui import saving
from kvscope.tui.ordering import Ordering
from kvscope.tui.panels.findings import FindingsPanel
from kvscope.tui.screens import discover as discover_screens
from kvscope.tui.screens._board import Board
from kvscope.tui.screens.main import MainScreen


class Navigating(Ordering):
    """One screen of its own data lies over the overview at a time; the session computes for the one that is open."""

    def pop_screen(self) -> AwaitComplete:
        """Close a screen, and let go of what was painted of it: the toolkit keeps the rows of a thousand widgets."""
        closing = super().pop_screen()
        self.call_later(lambda: StylesCache.get_inner_outer.cache_clear())
        return closing

    def on_findings_panel_opened(self, message: FindingsPanel.Opened) -> None:
        """Enter on a finding."""
        from kvscope.tui.screens.finding import FindingScreen

        if self.view is not None:
            back = self.view.page.name if self.view.page else "overview"
            self.push_screen(
                FindingScreen(message.finding, self.view), lambda _: self.order(lambda: self.session.look(back))
            )
            self.order(lambda: self.session.look(f"diagnosis/{message.finding.id}"))

    def action_replica(self, name: str) -> None:
        """The overview of one replica of the fleet."""
        self._leave_board()
        self.order(lambda: self.session.look(f"replica/{name}"))

    def action_board(self, name: str) -> None:
        """Open a screen in place of the one that is open; its own key closes it."""
        board = next(one for one in discover_screens() if one.name_of() == name)
        if isinstance(self.screen, board):
            self.action_close_board()
            return
        self._leave_board()
        self.push_screen(board())
        self.order(lambda: self.session.look(name))

    def action_close_board(self) -> None:
        """Back to the overview."""
        if self._leave_board() or (self.view is not None and self.view.only):
            self.order(lambda: self.session.look("overview"))

    def _leave_board(self) -> bool:
        """Close what lies over the overview; whether a screen of its own data was among it."""
        had = False
        while len(self.screen_stack) > 1 and not isinstance(self.screen, MainScreen):
            had = had or isinstance(self.screen, Board)
            self.pop_screen()
        return had

    def action_save(self, form: str = "svg") -> None:
        """Write the screen into the current directory, as a picture, as text or with every number as JSON."""
        try:
            told = f"Saved {saving.save(self, form)}"
        except OSError as error:
            self.notify(f"Not saved: {error}", severity="error", markup=False)
            return
        self.notify(told, timeout=4, markup=False)

    def action_copy(self) -> None:
        """Put the screen's text into the terminal's clipboard."""
        self.copy_to_clipboard(saving.plain(self))
        self.notify("Copied the screen as text", timeout=4)
