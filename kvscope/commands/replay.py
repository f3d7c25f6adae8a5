"""Open the dashboard on what was saved: a recording, scrapes, a log, a trace, a dead engine's flight recorder."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvscope.config import Settings
    from kvscope.sources.source import Poll, Source
    from kvscope.store import Store

EXAMPLES = (
    "kvscope replay before.db --speed 20",
    "kvscope replay after.jsonl.gz --baseline before.jsonl.gz   # one beside the other, at once",
    "kvscope replay pages.jsonl.gz --speed 0 --config config.json --gpu H200",
)

GROUP = "watch an engine"


def configure(parser: argparse.ArgumentParser) -> None:
    """The file, how fast, what it is compared with, and what is known of it besides."""
    from kvscope.commands._options import add_playbooks, add_slo, add_target, add_timing
    from kvscope.commands._told import add_compared, add_told

    add_target(parser)
    parser.add_argument("--speed", type=float, default=10.0, help="times real time; 0 shows everything at once (10)")
    add_told(parser)
    add_compared(parser)
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
    from kvscope.store import Store

    if options.speed < 0:
        raise UsageError(f"--speed is {options.speed:g}, expected 0 or more")
    if not Path(options.target).exists():
        if is_url(options.target) or options.target.isdecimal():
            raise UsageError(f"{options.target}: replay reads what was saved, attach watches running engines")
        if not set(options.target) & set("*?[,") and options.target != "-":
            raise UsageError(f"{options.target}: no such file; replay reads files, attach reads running engines")
    compared = options.baseline or options.segments
    source = with_told(open_target(options.target, speed=None if compared else options.speed or None), options)
    settings, store = settings_of(options), Store()
    if compared:
        source = _beside(source, options, settings, store)
    return show(source, settings, options, store)


def _beside(source: Source, options: argparse.Namespace, settings: Settings, store: Store) -> Source:
    """Read all of both targets, or of both segments, into ``store``; the source returned has nothing more to say."""
    from contextlib import closing

    from kvscope.sources import open_target
    from kvscope.watch import collect, fill, fill_pair

    read = collect(source, settings)
    if options.baseline:
        with closing(open_target(options.baseline)) as baseline:
            fill_pair(store, collect(baseline, settings), read, (baseline.describe().tags, source.describe().tags))
    else:
        fill(store, read)
    return ReadAlready(source)


class ReadAlready:
    """A source that was read to its end."""

    def __init__(self, source: Source) -> None:
        self.describe, self.close = source.describe, source.close

    def poll(self) -> Poll:
        from kvscope.sources.source import Poll

        return Poll([], ended=True)
