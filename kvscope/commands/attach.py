"""Open the dashboard on a running engine; detach with q, the engine never notices."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvscope.sources.source import Source

EXAMPLES = (
    "kvscope attach http://localhost:8000 --slo ttft=1s,tpot=50ms",
    "kvscope attach host1:8000,host2:8000          # a fleet",
    "kvscope attach localhost:8000 --wait 300      # an engine that is still starting",
)
_AGAIN_S = 1.0
GROUP = "watch an engine"


def configure(parser: argparse.ArgumentParser) -> None:
    """TARGET, what is known of it besides, and how often to look."""
    from kvscope.commands._dashboard import add_web
    from kvscope.commands._options import add_playbooks, add_slo, add_target, add_timing
    from kvscope.commands._told import add_told

    add_target(parser)
    parser.add_argument(
        "--wait", nargs="?", type=float, const=600.0, metavar="S", help="wait so long for TARGET to answer (600)"
    )
    add_told(parser)
    add_slo(parser)
    add_timing(parser, duration=False)
    add_playbooks(parser)
    add_web(parser)


def run(options: argparse.Namespace) -> int:
    """Run the dashboard until it is quit."""
    from kvscope.commands._dashboard import show
    from kvscope.commands._options import settings_of
    from kvscope.commands._told import with_told

    if options.web:
        from kvscope.commands._dashboard import serve_page

        given = {"--interval": options.interval, "--playbooks": options.playbooks, "--slo": options.slo}
        given |= {"--config": options.config, "--gpu": options.gpu, "--wait": options.wait}
        words = [word for name, value in given.items() if value is not None for word in (name, str(value))]
        return serve_page(["attach", options.target, *words], options.web_address)
    settings = settings_of(options)
    return show(with_told(_opened(options.target, options.wait), options), settings, options)


def _opened(target: str, wait_s: float | None) -> Source:
    """Open the target; with ``wait_s`` ask again until it answers or that many seconds are over."""
    import time

    from kvscope.errors import SourceError
    from kvscope.progress import Line
    from kvscope.sources import open_target

    until, line = time.monotonic() + (wait_s or 0.0), Line()
    while True:
        try:
            source = open_target(target, machine=True, sliced=True, follow=True)
        except SourceError:
            left = until - time.monotonic()
            if left <= 0:
                line.wipe()
                raise
            line.show(f"waiting for {target} … {left:.0f} s left")
            time.sleep(min(_AGAIN_S, left))
            continue
        line.wipe()
        return source
