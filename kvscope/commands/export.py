"""Give a target's canonical metrics to other tools: to Prometheus under one set of names, or as a table of samples.

Without --serve the page is printed once (for a textfile collector). With it the page is served on loopback until
Ctrl-C; while the target does not answer the scrape fails, as it would at the target itself. --csv and --parquet write
every sample as a row of ``t,metric,value,unit,labels,source``; the first kvscope reads again.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvscope.sources.source import Source

GROUP = "rules and monitoring"
EXAMPLES = ("kvscope export http://localhost:8000 --serve", "kvscope export server.log --csv server.csv")


def configure(parser: argparse.ArgumentParser) -> None:
    """TARGET, and where to serve it or what to write."""
    from kvscope.commands._options import add_target, add_timing

    add_target(parser)
    parser.add_argument("--serve", action="store_true", help="serve the page on 127.0.0.1 until Ctrl-C")
    parser.add_argument("--port", type=int, default=9177, help="port of --serve, 0 picks a free one (9177)")
    parser.add_argument(
        "--csv", metavar="FILE", help="write the samples as a table (-: to stdout); a live target's for --duration"
    )
    parser.add_argument("--parquet", metavar="FILE", help="the same in Parquet (extra: pip install 'kvscope[parquet]')")
    parser.add_argument("--force", action="store_true", help="replace an existing file")
    add_timing(parser)


def run(options: argparse.Namespace) -> int:
    """Exit 0 after one page, 130 when serving is interrupted, 3 when the target has ended for good."""
    from contextlib import closing

    from kvscope.exposition import Exposition
    from kvscope.sources import open_target

    with closing(open_target(options.target, machine=True)) as source:
        if options.csv or options.parquet:
            return _table(source, options)
        if options.serve:
            return _serve(source, options)
        exposition = Exposition()
        exposition.add(source.poll().samples)
        about = source.describe()
        print(exposition.render({**about.tags, "engine": about.engine, "version": about.version}), end="")
    return 0


def _table(source: Source, options: argparse.Namespace) -> int:
    import sys
    import time
    from contextlib import ExitStack
    from pathlib import Path

    from kvscope.commands._options import output, settings_of
    from kvscope.sources.table import CsvTable, ParquetTable
    from probes.border import lines_printable

    settings, began, rows = settings_of(options), time.monotonic(), 0
    paths = {
        kind: Path(text) if text == "-" else output(text, options, options.target)
        for kind, text in (("csv", options.csv), ("parquet", options.parquet))
        if text
    }
    where = source.describe().target
    with ExitStack() as stack:
        tables: list[CsvTable | ParquetTable] = []
        for kind, path in paths.items():
            tables.append(CsvTable(path, where) if kind == "csv" else ParquetTable(path, where))
            stack.enter_context(tables[-1])
        while True:
            poll = source.poll()
            for table in tables:
                table.write(poll.samples)
            rows += len(poll.samples)
            if poll.ended or time.monotonic() - began >= settings.duration:
                break
            time.sleep(settings.interval)
    told = sys.stderr if "-" in map(str, paths.values()) else sys.stdout
    for path in paths.values():
        print(f"{lines_printable(str(path))}: {rows} samples", file=told)
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
