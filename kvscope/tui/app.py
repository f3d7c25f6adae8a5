"""The dashboard application: keys, one polling thread, and messages between the two."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import ClassVar

from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.theme import Theme

from kvscope.tui.ordering import Ordering, Watched
from kvscope.tui.palette import BAD, DIM, FIRST, GOOD, GROUND, NOTE, RAISED, TEXT
from kvscope.tui.panels.findings import FindingsPanel
from kvscope.tui.poller import Answered, Broken, ViewReady
from kvscope.tui.screens import discover as discover_screens
from kvscope.tui.screens._board import Board
from kvscope.tui.screens.main import MainScreen

_THEME = Theme(
    name="kvscope",
    primary=FIRST,
    secondary=DIM,
    accent=FIRST,
    warning=NOTE,
    error=BAD,
    success=GOOD,
    foreground=TEXT,
    background=GROUND,
    surface=GROUND,
    panel=RAISED,
    dark=True,
    variables={"footer-key-foreground": FIRST, "footer-background": RAISED, "footer-description-foreground": DIM},
)


_LAST_POLL_S = 5.0
"""A poll under way at the end gets this long, so that a recording is finished by one thread only."""


class KvscopeApp(Ordering):
    """Shows views; every key that changes something becomes an order to the polling thread."""

    TITLE = "kvscope"
    CSS_PATH = "kvscope.tcss"
    ENABLE_COMMAND_PALETTE = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("b", "mark", "Baseline", id="mark"),
        Binding("B", "baseline", "Other baseline", id="baseline", show=False),
        Binding("space", "pause", "Pause", id="pause"),
        Binding("d", "diagnose", "Diagnose", id="diagnose"),
        Binding("a", "apply", "Apply", id="apply"),
        Binding("plus,equals_sign", "zoom(-1)", "Shorter time", id="time.shorter", show=False, key_display="+"),
        Binding("minus", "zoom(1)", "Longer time", id="time.longer", show=False, key_display="-"),
        Binding("comma", "scrub(-1)", "Earlier", id="time.earlier", show=False, key_display=","),
        Binding("full_stop", "scrub(1)", "Later", id="time.later", show=False, key_display="."),
        Binding("n", "now", "Back to now", id="time.now", show=False),
        Binding("o", "onset", "Where it began", id="time.onset", show=False),
        Binding("v", "overlay", "Baseline under the curves", id="time.overlay", show=False),
        Binding("r", "record", "Record", id="record"),
        Binding("s", "save", "Save", id="save"),
        *(
            Binding(
                one.KEY, f"board('{one.name_of()}')", f"{one.TITLE} screen", show=False, id=f"screen.{one.name_of()}"
            )
            for one in discover_screens()
        ),
        Binding("question_mark", "help", "Help", id="help", key_display="?"),
        Binding("q", "quit", "Quit", id="quit"),
        Binding("ctrl+c", "quit", "Quit", id="interrupt", show=False, priority=True),
    ]
    _COMMANDS = (
        ("Mark baseline", "Everything so far becomes the baseline, a new segment starts", "mark"),
        ("Other baseline", "Compare with another segment", "baseline"),
        ("Pause or go on", "The view stands still, data are still collected", "pause"),
        ("Back to now", "The newest sample again", "now"),
        ("Where it began", "The moment at which the chosen finding began", "onset"),
        ("Baseline under the curves", "Its own curve, moved to where the current segment starts", "overlay"),
        ("Diagnose now", "Ask every playbook at once", "diagnose"),
        ("Apply the experiment", "Change the built-in engine as the finding proposes, then verify", "apply"),
        ("Record or stop recording", "Write everything read into a file", "record"),
        ("Save a picture", "The screen as an SVG file", "save"),
        ("Help", "Keys, panels, signs", "help"),
    )

    def __init__(self, session: Watched, *, interval_s: float = 1.0, keymap: dict[str, str] | None = None) -> None:
        super().__init__(session, interval_s)
        self.register_theme(_THEME)
        self.theme = "kvscope"
        self.broken: BaseException | None = None
        if keymap:
            self.set_keymap(keymap)

    def on_mount(self) -> None:
        """The dashboard first, data as it comes."""
        self.push_screen(MainScreen())
        self._leave_cleanly_on_signals()
        self.poller.start()

    def on_unmount(self) -> None:
        """Stop polling; a poll under way may finish."""
        self.poller.stop()

    def _leave_cleanly_on_signals(self) -> None:
        import asyncio

        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(number, self.exit)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette offers what the keys do."""
        for title, text, action in self._COMMANDS:
            yield SystemCommand(title, text, getattr(self, f"action_{action}"))
        for board in discover_screens():
            yield SystemCommand(f"Screen: {board.TITLE}", board.HELP, partial(self.action_board, board.name_of()))
        yield SystemCommand("Screen: Overview", "Verdict, numbers, findings, charts", self.action_close_board)
        yield SystemCommand("Quit", "Leave the dashboard", self.action_quit)

    def on_view_ready(self, message: ViewReady) -> None:
        """Give the view to the screens that can use it."""
        self.view = message.view
        for screen in self.screen_stack:
            if isinstance(screen, MainScreen) and message.view.page is not None:
                continue  # made for another screen: the overview keeps what it shows
            receive = getattr(screen, "receive", None)
            if receive is not None:
                receive(message.view)

    def on_answered(self, message: Answered) -> None:
        """Say what came of an order."""
        if message.text:
            self.notify(message.text, severity="error" if message.failed else "information", timeout=5, markup=False)

    def on_broken(self, message: Broken) -> None:
        """Nothing more will come: leave, and let the caller see why."""
        self.broken = message.error
        self.exit(return_code=1)

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

    def action_save(self) -> None:
        """Write the screen as SVG into the current directory."""
        name = time.strftime("kvscope-%Y%m%d-%H%M%S.svg")
        try:
            Path(name).write_text(self.export_screenshot(title="kvscope"), encoding="utf-8")
        except OSError as error:
            self.notify(f"Not saved: {error}", severity="error", markup=False)
            return
        self.notify(f"Saved {name}", timeout=4, markup=False)

    def action_help(self) -> None:
        """Everything the keys do, and what the signs mean."""
        from kvscope.tui.screens.help import HelpScreen

        told = {action: f"{title}. {text}" for title, text, action in self._COMMANDS}
        keys = {
            told.get(binding.action, binding.description): binding.key_display or binding.key
            for bindings in self._bindings.key_to_bindings.values()
            for binding in bindings
            if binding.id and binding.id != "interrupt"
        }
        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen([(key, what) for what, key in keys.items()]))


def run(session: Watched, *, interval_s: float = 1.0, keymap: dict[str, str] | None = None) -> None:
    """Show ``session`` until the user quits; closes it, and raises what stopped the polling thread if anything did.

    Textual draws on stderr, so that must be the terminal.
    """
    if not sys.__stderr__ or not sys.__stderr__.isatty():
        from kvscope.errors import UsageError

        raise UsageError("the dashboard draws on standard error, and that is not a terminal; use `kvscope diagnose`")
    app = KvscopeApp(session, interval_s=interval_s, keymap=keymap)
    try:
        app.run()
    finally:
        app.poller.stop()
        if app.poller.ident is not None:
            app.poller.join(timeout=_LAST_POLL_S)
        session.close()
    if app.broken is not None:
        raise app.broken
