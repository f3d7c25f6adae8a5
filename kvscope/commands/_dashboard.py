"""Opens the dashboard on a source."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvscope.config import Settings
    from kvscope.sources._base import Source


def show(source: Source, settings: Settings) -> int:
    """Run the dashboard until it is quit. A built-in engine this user may control gets its control door."""
    from pathlib import Path

    from kvscope.commands._watch import load_playbooks
    from kvscope.session import Session
    from kvscope.sources.control import EngineControl
    from kvscope.tui import app

    about = source.describe()
    control = EngineControl(Path(about.target)) if about.kind == "ring" and about.alive else None
    controller = control if control is not None and control.available else None
    session = Session(source, load_playbooks(settings), controller=controller)
    app.run(session, interval_s=settings.interval)
    return 0
