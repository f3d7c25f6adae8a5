"""Opens the dashboard on a source."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvscope.config import Settings
    from kvscope.sources._base import Source
    from kvscope.sources.control import EngineControl
    from kvscope.tui.poller import Watched


def show(source: Source, settings: Settings) -> int:
    """Run the dashboard until it is quit. A built-in engine this user may control gets its control door.

    The shipped playbooks are read after the first frame; mistakes in the user's own are told before it.
    """
    import gc

    gc.disable()  # Nothing made while starting is garbage; the dashboard turns it on again.
    from kvscope.commands._watch import Shelf, load_playbooks
    from kvscope.session import Session

    playbooks = load_playbooks(settings) if settings.playbooks else Shelf(settings)
    draw(Session(source, playbooks, controller=_controller(source)), settings)
    return 0


def _controller(source: Source) -> EngineControl | None:
    from pathlib import Path

    about = source.describe()
    if about.kind != "ring" or not about.alive:
        return None
    from kvscope.sources.control import EngineControl

    control = EngineControl(Path(about.target))
    return control if control.available else None


def draw(session: Watched, settings: Settings, fastest_s: float = 60.0) -> None:
    """Show a session until somebody quits, in the user's theme and with the user's keys."""
    import os

    from kvscope import config

    os.environ["KVSCOPE_THEME"] = settings.theme
    from kvscope.tui import app

    app.run(session, interval_s=min(settings.interval, fastest_s), keymap=config.keys())
