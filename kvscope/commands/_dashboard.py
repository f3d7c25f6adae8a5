"""Opens the dashboard on a source."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvscope.config import Settings
    from kvscope.sources._base import Source
    from kvscope.tui.ordering import Watched


def show(source: Source, settings: Settings) -> int:
    """Run the dashboard until it is quit. A built-in engine this user may control gets its control door."""
    from pathlib import Path

    from kvscope.commands._watch import load_playbooks
    from kvscope.session import Session
    from kvscope.sources.control import EngineControl

    about = source.describe()
    control = EngineControl(Path(about.target)) if about.kind == "ring" and about.alive else None
    controller = control if control is not None and control.available else None
    session = Session(source, load_playbooks(settings), controller=controller)
    draw(session, settings)
    return 0


def draw(session: Watched, settings: Settings, fastest_s: float = 60.0) -> None:
    """Show a session until somebody quits, in the user's theme and with the user's keys."""
    import os

    from kvscope import config

    os.environ["KVSCOPE_THEME"] = settings.theme
    from kvscope.tui import app

    app.run(session, interval_s=min(settings.interval, fastest_s), keymap=config.keys())
