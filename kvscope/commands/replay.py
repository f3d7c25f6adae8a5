"""Open the dashboard on a recording, a saved scrape series or a dead engine's flight recorder."""

from __future__ import annotations

import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    """The file and how fast."""
    from kvscope.commands._options import add_playbooks, add_timing

    parser.add_argument(
        "target", metavar="FILE", help="recording (.db, .jsonl), saved scrape series or flight recorder"
    )
    parser.add_argument("--speed", type=float, default=10.0, help="times real time; 0 shows everything at once (10)")
    add_timing(parser, duration=False)
    add_playbooks(parser)


def run(options: argparse.Namespace) -> int:
    """Run the dashboard until it is quit; it stays open at the end of the data."""
    from pathlib import Path

    from kvscope.commands._dashboard import show
    from kvscope.commands._options import settings_of
    from kvscope.errors import UsageError
    from kvscope.sources import open_target

    if options.speed < 0:
        raise UsageError(f"--speed is {options.speed:g}, expected 0 or more")
    if not Path(options.target).exists():
        raise UsageError(f"{options.target}: no such file; replay reads files, attach reads running engines")
    return show(open_target(options.target, speed=options.speed or None), settings_of(options))
