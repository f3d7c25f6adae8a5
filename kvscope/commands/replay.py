"""Open the dashboard on what was saved: a recording, scrapes, a log, a trace, a dead engine's flight recorder."""

from __future__ import annotations

import argparse

EXAMPLES = (
    "kvscope replay before.db --speed 20",
    "kvscope replay pages.jsonl.gz --speed 0 --config config.json --gpu H200",
)

GROUP = "watch an engine"


def configure(parser: argparse.ArgumentParser) -> None:
    """The file, how fast, and what is known of it besides."""
    from kvscope.commands._options import add_playbooks, add_slo, add_target, add_timing
    from kvscope.commands._told import add_told

    add_target(parser)
    parser.add_argument("--speed", type=float, default=10.0, help="times real time; 0 shows everything at once (10)")
    add_told(parser)
    add_slo(parser)
    add_timing(parser, duration=False)
    add_playbooks(parser)


def run(options: argparse.Namespace) -> int:
    """Run the dashboard until it is quit; it stays open at the end of the data."""
    from pathlib import Path

    from kvscope.commands._dashboard import show
    from kvscope.commands._options import settings_of
    from kvscope.commands._told import with_told
    from kvscope.errors import UsageError
    from kvscope.sources import open_target
    from kvscope.sources.scrape import is_url

    if options.speed < 0:
        raise UsageError(f"--speed is {options.speed:g}, expected 0 or more")
    if not Path(options.target).exists():
        if is_url(options.target) or options.target.isdecimal():
            raise UsageError(f"{options.target}: replay reads what was saved, attach watches running engines")
        if not set(options.target) & set("*?[,") and options.target != "-":
            raise UsageError(f"{options.target}: no such file; replay reads files, attach reads running engines")
    source = open_target(options.target, speed=options.speed or None)
    return show(with_told(source, options), settings_of(options), options)
