"""The dashboard application: keys, one polling thread, messages between the two, and a terminal that may go away."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import ClassVar, TextIO

from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.theme import Theme

from kvscope.errors import UsageError, nearest
from kvscope.tui.keys import KEYS, idle, screen_keys
from kvscope.tui.ordering import Ordering
from kvscope.tui.palette import (
    BAD,
    CHOSEN,
    CHOSEN_AWAY,
    DIM,
    FAINT,
    FIRST,
    FOCUS,
    GOOD,
    GROUND,
    LIGHT,
    LINE,
    NOTE,
    RAISED,
    TEXT,
    use_sixteen,
)
from kvscope.tui.poller import Answered, Broken, ViewReady, Watched
from kvscope.tui.screens.board import Bar
from kvscope.tui.screens.main import MainScreen
from kvscope.tui.widgets.key_bar import KeyBar

_LOOK_EVERY_S = 2.0
_GRACE_S = 8.0
"""Enough to finish a recording in good order."""

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def leave_cleanly_on_signals(leave: Callable[[], None]) -> None:
    """Signals that end a program end the dashboard first, so that the terminal is as it was."""
    import asyncio

    loop = asyncio.get_running_loop()
    for number in ENDING:
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, leave)


def terminal_present() -> bool:
    """Is there a terminal to draw on? A terminal that was closed answers no question any more."""
    return _is_terminal(sys.__stderr__)


def terminal_missing() -> str:
    """Which standard stream the dashboard needs is not a terminal, in words; empty where both are."""
    if not terminal_present():
        return "draws on standard error"
    return "" if _is_terminal(sys.__stdin__) else "reads keys from standard input"


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and not stream.closed and os.isatty(stream.fileno())


def watch_terminal() -> None:
    """End the process in the end where its terminal has gone and the dashboard cannot leave by itself.

    A screen that was being written when the terminal went is waited for, for ever, by the thread that answers signals.
    """
    threading.Thread(target=_end_without_terminal, name="kvscope-terminal", daemon=True).start()


def _end_without_terminal() -> None:
    while terminal_present():
        time.sleep(_LOOK_EVERY_S)
    time.sleep(_GRACE_S)
    os._exit(128 + signal.SIGHUP)


@contextlib.contextmanager
def asked_for_its_size() -> Iterator[None]:
    """The terminal is asked for its size by way of standard output; meanwhile that is where the dashboard draws."""
    named = sys.__stdout__
    sys.__stdout__ = sys.__stderr__  # type: ignore[misc]
    try:
        yield
    finally:
        sys.__stdout__ = named  # type: ignore[misc]


def end_at_once_if_gone(was_present: bool) -> None:
    """End the process where its terminal has gone: a thread that reads a closed terminal waits, or spins, for ever.

    Call it last, when everything that must be written is written. The exit code is a hang-up's.
    """
    if was_present and not terminal_present():
        os._exit(128 + signal.SIGHUP)


HINT = "? shows every key. 2 opens the diagnosis, b makes everything so far the baseline, space stops time, q quits."

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
    dark=not LIGHT,
    variables={
        "footer-key-foreground": FIRST,
        "footer-background": RAISED,
        "footer-description-foreground": DIM,
        "kv-line": LINE,
        "kv-faint": FAINT,
        "kv-focus": FOCUS,
        "kv-dim": DIM,
        "kv-chosen": CHOSEN,
        "kv-chosen-away": CHOSEN_AWAY,
    },
)


_LAST_POLL_S = 5.0
"""A poll under way at the end gets this long, so that a recording is finished by one thread only."""
_LOOK_FOR_TERMINAL_S = 2.0
_FIRST_VIEW_S = 0.5
"""A target that answers later finds an empty screen painted."""
_SETTLED_S = 2.0
"""What was made by then stays until the end."""
_TURN_S = 0.001
"""A key waits so long, three times over, for the polling thread to let go of the interpreter; Python's own is 0.005."""


class KvscopeApp(Ordering):
    """Shows views; every key that changes something becomes an order to the polling thread."""

    TITLE = "kvscope"
    CSS_PATH = "kvscope.tcss"
    ENABLE_COMMAND_PALETTE = True
    BINDINGS: ClassVar[list[BindingType]] = [
        *(key.binding for key in (*KEYS, *screen_keys())),
        Binding("ctrl+c", "quit", "Quit", id="interrupt", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", "Suspend", id="suspend", show=False, priority=True),
    ]

    def __init__(
        self, session: Watched, *, interval_s: float = 1.0, keymap: Mapping[str, str] | None = None, hint: str = ""
    ) -> None:
        super().__init__(session, interval_s)
        self._hint = hint
        self.register_theme(_THEME)
        self.theme = "kvscope"
        self.broken: BaseException | None = None
        self._held: ExitStack | None = ExitStack()
        if keymap:
            self.set_keymap(dict(keymap))

    def get_default_screen(self) -> Screen[object]:
        """The dashboard itself, rather than an empty screen for it to lie on."""
        return MainScreen(self._paint)  # type: ignore[return-value]

    def on_load(self) -> None:
        """Ask for the first view while the screen is built; an empty one is not painted meanwhile."""
        if self._held is not None:
            self._held.enter_context(self.batch_update())
        self.poller.start()

    def _paint(self) -> None:
        """From now on everything is painted as it comes."""
        if self._held is None:
            return
        held, self._held = self._held, None
        held.close()
        if self.screen_stack and self.screen.size:
            self.screen.refresh(layout=True)

    def on_mount(self) -> None:
        """Whatever may end the program is heard from here on."""
        if self.console.color_system == "standard" and not self.is_headless:
            use_sixteen()
        self.set_timer(_FIRST_VIEW_S, self._paint)
        if self._hint:
            self.notify(self._hint, title="Welcome", timeout=20, markup=False)
        leave_cleanly_on_signals(self.exit)
        if terminal_present():
            self.set_interval(_LOOK_FOR_TERMINAL_S, self._leave_without_terminal)
        self.app_resume_signal.subscribe(self, lambda _: self.screen.refresh(layout=True))
        if not self.is_headless:
            self.set_timer(_SETTLED_S, _settle)

    def _leave_without_terminal(self) -> None:
        """A hang-up that never reached this process (it was stopped, or started by nohup) still ends it."""
        if not terminal_present():
            self.exit(return_code=1)

    def on_unmount(self) -> None:
        """Stop polling; a poll under way may finish."""
        self.poller.stop()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette offers what the keys do."""
        for key in KEYS:
            if key.id in idle(self.view):
                continue
            yield SystemCommand(key.title, key.says, partial(self.run_action, f"app.{key.binding.action}"))
        for key in screen_keys():
            yield SystemCommand(f"Screen: {key.title}", key.says, partial(self.run_action, f"app.{key.does}"))

    def on_view_ready(self, message: ViewReady) -> None:
        """Give the view to the screens that can use it."""
        changed = self.view is None or self.view.offered != message.view.offered
        changed = changed or idle(self.view) != idle(message.view)
        self.view = message.view
        if changed:
            for line in (*self.screen.query(Bar), *self.screen.query(KeyBar)):
                line.redraw()
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

    def action_help(self) -> None:
        """Everything the keys do, and what the signs mean."""
        from kvscope.tui.screens.help import HelpScreen

        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen())


def _settle() -> None:
    """Collect garbage again, but never look through what the start made: a whole collection would hold a key up.

    A closed screen is a megabyte of it in circles, so whole collections, which are short now, come more often.
    """
    gc.freeze()
    gc.set_threshold(700, 10, 2)
    gc.enable()


def binding_ids() -> tuple[str, ...]:
    """Names by which keys can be given other keys in kvscope.toml."""
    own = [one.id for one in (*KvscopeApp.BINDINGS, *MainScreen.BINDINGS) if isinstance(one, Binding) and one.id]
    return tuple(sorted(own))


def first_hint(state: Path | None = None) -> str:
    """The hint, the first time it is asked for; empty ever after, and where that cannot be remembered."""
    state = state or Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    seen = state / "kvscope" / "welcomed"
    try:
        seen.parent.mkdir(parents=True, exist_ok=True)
        seen.touch(exist_ok=False)
    except OSError:
        return ""
    return HINT


def run(session: Watched, *, interval_s: float = 1.0, keymap: Mapping[str, str] | None = None) -> None:
    """Show ``session`` until the user quits; closes it, and raises what stopped the polling thread if anything did.

    Textual draws on stderr, so that must be the terminal.
    """
    in_terminal = terminal_present()
    if not os.environ.get("TEXTUAL_DRIVER") and (what := terminal_missing()):
        raise UsageError(f"the dashboard {what}, and that is not a terminal; use `kvscope diagnose`")
    for name in keymap or {}:
        if name not in binding_ids():
            raise UsageError(f"[keys]: no action {name!r}{nearest(name, binding_ids())}; {', '.join(binding_ids())}")
    app = KvscopeApp(session, interval_s=interval_s, keymap=keymap, hint=first_hint())
    sys.setswitchinterval(_TURN_S)
    if in_terminal:
        watch_terminal()
    try:
        # A page has no terminal to ask, and its driver writes to the very stream that would be another one meanwhile.
        with nullcontext() if os.environ.get("TEXTUAL_DRIVER") else asked_for_its_size():
            app.run()
    finally:
        app.poller.stop()
        if app.poller.ident is not None:
            app.poller.join(timeout=_LAST_POLL_S)
        session.close()
        end_at_once_if_gone(in_terminal)
    if app.broken is not None:
        raise app.broken
