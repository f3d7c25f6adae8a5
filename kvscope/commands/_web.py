"""The dashboard in a browser: the same program, drawn into a page instead of a terminal."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

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


def serve(words: Sequence[str], address: str) -> int:
    """Serve ``kvscope WORDS`` until interrupted: every page that is opened runs one. UsageError without the extra."""
    import shlex
    import sys

    from kvscope.errors import UsageError

    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise UsageError(f"--web-address {address!r}: expected HOST:PORT")
    try:
        from textual_serve.server import Server
    except ModuleNotFoundError:
        raise UsageError("--web needs textual-serve: pip install 'kvscope[web]'") from None
    if host not in ("127.0.0.1", "localhost", "[::1]"):
        print(f"kvscope: {host} is open to others, and whoever opens the page has your keys", file=sys.stderr)
    command = shlex.join([sys.executable, "-m", "kvscope", *words])
    Server(command, host=host.strip("[]"), port=int(port), title="kvscope").serve()
    return 0
