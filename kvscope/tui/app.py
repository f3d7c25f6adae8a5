"""The dashboard application: keys, one polling thread, and messages between the two."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar, Protocol

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.theme import Theme

from kvscope.finding import Diagnosis, Finding
from kvscope.tui.palette import BAD, DIM, FIRST, GOOD, GROUND, NOTE, RAISED, TEXT
from kvscope.tui.panels.findings import FindingsPanel
from kvscope.tui.poller import Answered, Broken, Order, Poller, ViewReady
from kvscope.tui.screens.main import MainScreen
from kvscope.view import View

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


class Watched(Protocol):
    """What the dashboard asks of a session; ``kvscope.session.Session`` is one."""

    def poll(self) -> View: ...

    def mark(self, name: str | None = None, tags: dict[str, str] | None = None) -> str: ...

    def next_baseline(self) -> str: ...

    def zoom(self, steps: int) -> str: ...

    def set_paused(self, paused: bool) -> None: ...

    def diagnose_now(self) -> Diagnosis: ...

    def apply(self, finding_id: str) -> str: ...

    def toggle_recording(self, path: Path | None = None) -> str: ...

    def close(self) -> None: ...


class KvscopeApp(App[None]):
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
        Binding("r", "record", "Record", id="record"),
        Binding("s", "save", "Save", id="save"),
        Binding("question_mark", "help", "Help", id="help", key_display="?"),
        Binding("q", "quit", "Quit", id="quit"),
        Binding("ctrl+c", "quit", "Quit", id="interrupt", show=False, priority=True),
    ]
    _COMMANDS = (
        ("Mark baseline", "Everything so far becomes the baseline, a new segment starts", "mark"),
        ("Other baseline", "Compare with another segment", "baseline"),
        ("Pause or go on", "The view stands still, data are still collected", "pause"),
        ("Diagnose now", "Ask every playbook at once", "diagnose"),
        ("Apply the experiment", "Change the built-in engine as the finding proposes, then verify", "apply"),
        ("Record or stop recording", "Write everything read into a file", "record"),
        ("Save a picture", "The screen as an SVG file", "save"),
        ("Help", "Keys, panels, signs", "help"),
    )

    def __init__(self, session: Watched, *, interval_s: float = 1.0, keymap: dict[str, str] | None = None) -> None:
        super().__init__()
        self.register_theme(_THEME)
        self.theme = "kvscope"
        self.session = session
        self.view: View | None = None
        self._paused = False
        self._asked_diagnosis = False
        self.poller = Poller(session, self.post_message, interval_s)
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
        yield SystemCommand("Quit", "Leave the dashboard", self.action_quit)

    def on_view_ready(self, message: ViewReady) -> None:
        """Give the view to the screens that can use it."""
        self.view = message.view
        for screen in self.screen_stack:
            receive = getattr(screen, "receive", None)
            if receive is not None:
                receive(message.view)

    def on_answered(self, message: Answered) -> None:
        """Say what came of an order."""
        if message.text:
            self.notify(message.text, severity="error" if message.failed else "information", timeout=5, markup=False)

    def on_broken(self, message: Broken) -> None:
        """Nothing more will come: leave, and let the caller see why."""
        self._broken = message.error
        self.exit(return_code=1)

    def on_findings_panel_opened(self, message: FindingsPanel.Opened) -> None:
        """Enter on a finding."""
        from kvscope.tui.screens.finding import FindingScreen

        if self.view is not None:
            self.push_screen(FindingScreen(message.finding, self.view))

    def _order(self, order: Order) -> None:
        self.poller.ask(order)

    def action_mark(self) -> None:
        """Everything so far is the baseline; a new segment starts."""
        self._order(self.session.mark)

    def action_baseline(self) -> None:
        """Compare with another segment."""
        self._order(self.session.next_baseline)

    def action_pause(self) -> None:
        """Freeze or thaw the view; collecting goes on."""
        self._paused = not self._paused
        paused = self._paused

        def order() -> str:
            self.session.set_paused(paused)
            return ""

        self._order(order)

    def action_diagnose(self) -> None:
        """Ask all playbooks now."""

        def order() -> str:
            found = [
                f for f in self.session.diagnose_now().findings if f.verdict in ("confirmed", "likely", "possible")
            ]
            return f"Diagnosed: {len(found)} finding{'s' if len(found) != 1 else ''}"

        self._order(order)

    def action_zoom(self, steps: int) -> None:
        """Let the charts show a longer or shorter stretch of time."""
        self._order(lambda: self.session.zoom(steps))

    def action_record(self) -> None:
        """Start or stop a recording."""
        self._order(self.session.toggle_recording)

    def action_apply(self) -> None:
        """Ask, then apply the proposed experiment of the chosen finding."""
        from kvscope.tui.screens.confirm import ConfirmScreen

        finding = self._to_apply()
        if self.view is None or finding is None or finding.experiment is None:
            self.notify("No finding proposes a change that can be made from here.", timeout=4)
            return
        if not self.view.can_apply:
            hint = finding.experiment.run or finding.experiment.change
            self.notify(
                f"Only the built-in engine can be changed from here. For yours: {hint}", timeout=8, markup=False
            )
            return
        sets = "\n".join(f"{name} = {value}" for name, value in finding.experiment.set)
        held = f"\nheld: {', '.join(finding.experiment.hold)}" if finding.experiment.hold else ""

        def answer(yes: bool | None) -> None:
            if yes:
                self._order(lambda: self.session.apply(finding.id))

        self.push_screen(ConfirmScreen(f"Apply: {finding.experiment.change}?", sets + held), answer)

    def _to_apply(self) -> Finding | None:
        """The chosen finding when it sets something, else the first that does."""
        for screen in reversed(self.screen_stack):
            finding = getattr(screen, "finding", None)
            if isinstance(finding, Finding):
                return finding if finding.experiment and finding.experiment.set else None
        main = next((screen for screen in self.screen_stack if isinstance(screen, MainScreen)), None)
        chosen = main.findings.chosen if main else None
        candidates = [chosen] if chosen else []
        candidates += list(self.view.findings) if self.view else []
        return next((f for f in candidates if f.experiment and f.experiment.set), None)

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

    _broken: BaseException | None = None


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
    if app._broken is not None:
        raise app._broken
