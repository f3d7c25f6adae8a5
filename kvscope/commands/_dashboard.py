"""Opens the dashboard on a source, in the terminal or, drawn into a page, in a browser."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvscope.config import Settings
    from kvscope.sources.control import EngineControl
    from kvscope.sources.source import Source
    from kvscope.store import Store
    from kvscope.tui.poller import Watched


def show(source: Source, settings: Settings, options: argparse.Namespace, store: Store | None = None) -> int:
    """Run the dashboard until it is quit. A built-in engine this user may control gets its control door.

    ``store``: what was read already. Of two segments named by ``--segments`` the second is shown beside the first.

    The shipped playbooks are read after the first frame; mistakes in the user's own are told before it.
    """
    import gc

    gc.disable()  # Nothing made while starting is garbage; the dashboard turns it on again.
    from kvscope.account.found import facts_of
    from kvscope.session import Session
    from kvscope.slo import parse
    from kvscope.store import Store
    from kvscope.watch import Shelf, load_playbooks

    playbooks = load_playbooks(settings) if settings.playbooks else Shelf(settings)
    # Files end, and a flight recorder is bounded by itself: what is polled for hours has no end of its own.
    polled = source.describe().kind != "ring" and not os.path.exists(options.target)
    draw(
        Session(
            source,
            playbooks,
            controller=_controller(source),
            store=Store.live() if polled else None,
            slo=parse(settings.slo),
            facts=lambda store: facts_of(options.target, source.describe(), store, options.config, options.gpu),
        ),
        settings,
    )
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


ADDRESS = "127.0.0.1:8008"
DRIVER = "TEXTUAL_DRIVER"
"""Set for a dashboard that draws into a page; its standard streams are no terminal then."""


def add_web(parser: argparse.ArgumentParser) -> None:
    """--web and where."""
    parser.add_argument("--web", action="store_true", help="serve the dashboard to a browser (needs the extra `web`)")
    parser.add_argument(
        "--web-address", default=ADDRESS, metavar="HOST:PORT", help=f"where --web listens ({ADDRESS}); no password"
    )


def in_page() -> bool:
    """Whether this process draws into a browser's page."""
    return bool(os.environ.get(DRIVER))


def serve_page(words: Sequence[str], address: str) -> int:
    """Serve ``kvscope WORDS`` until interrupted: every page that is opened runs one. UsageError without the extra."""
    import shlex
    import sys

    from kvscope.errors import UsageError

    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise UsageError(f"--web-address {address!r}: expected HOST:PORT")
    try:
        from kvscope.web import PageServer
    except ModuleNotFoundError:
        raise UsageError("--web needs textual-serve: pip install 'kvscope[web]'") from None
    if host not in ("127.0.0.1", "localhost", "[::1]"):
        print(f"kvscope: {host} is open to others, and whoever opens the page has your keys", file=sys.stderr)
    command = shlex.join([sys.executable, "-m", "kvscope", *words])
    PageServer(command, host.strip("[]"), int(port)).serve()
    return 0
