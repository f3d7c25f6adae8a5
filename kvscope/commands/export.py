"""Give a target's canonical metrics to Prometheus, so that existing monitoring sees them under one set of names.

Without --serve the page is printed once (for a textfile collector). With it the page is served on loopback until
Ctrl-C; while the target does not answer the scrape fails, as it would at the target itself.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvscope.sources.source import Source

GROUP = "rules and monitoring"
EXAMPLES = ("kvscope export http://localhost:8000 --serve",)


def configure(parser: argparse.ArgumentParser) -> None:
    """TARGET, and where to serve it."""
    from kvscope.commands._options import add_target, add_timing

    add_target(parser)
    parser.add_argument("--serve", action="store_true", help="serve the page on 127.0.0.1 until Ctrl-C")
    parser.add_argument("--port", type=int, default=9177, help="port of --serve, 0 picks a free one (9177)")
    add_timing(parser, duration=False)


def run(options: argparse.Namespace) -> int:
    """Exit 0 after one page, 130 when serving is interrupted, 3 when the target has ended for good."""
    from contextlib import closing

    from kvscope.exposition import Exposition
    from kvscope.sources import open_target

    with closing(open_target(options.target, machine=True)) as source:
        if options.serve:
            return _serve(source, options)
        exposition = Exposition()
        exposition.add(source.poll().samples)
        about = source.describe()
        print(exposition.render({**about.tags, "engine": about.engine, "version": about.version}), end="")
    return 0


def _serve(source: Source, options: argparse.Namespace) -> int:
    import sys
    import time
    from contextlib import closing

    from kvscope.commands._options import settings_of
    from kvscope.errors import EXIT_SOURCE
    from kvscope.exporter import Exporter

    settings = settings_of(argparse.Namespace(interval=options.interval))
    with closing(Exporter(source, options.port)) as exporter:
        print(exporter.address, flush=True)
        while True:
            notices, ended = exporter.poll()
            for notice in notices:
                print(f"kvscope: {notice}", file=sys.stderr)
            if ended:
                return EXIT_SOURCE
            time.sleep(settings.interval)
