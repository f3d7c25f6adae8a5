"""Put two recordings, targets or benchmark results side by side: what changed, what did not, what cannot be told.

A and B are anything `diagnose` reads, or the JSON results of `bench` commands. Of a recording with several segments
the last is taken; --segments names others, so that one recording can be compared with itself.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvscope.config import Settings
    from kvscope.result.side import Side


def configure(parser: argparse.ArgumentParser) -> None:
    """Both sides, and how much difference counts."""
    from kvscope.commands._options import TARGET_HELP, add_timing

    parser.add_argument("a", metavar="A", help=f"before: {TARGET_HELP}, or a benchmark's JSON result")
    parser.add_argument("b", metavar="B", help="after: the same")
    parser.add_argument("--segments", metavar="A,B", help="the segment of each side (default: the last one)")
    parser.add_argument("--within", type=float, default=5.0, metavar="PERCENT", help="a change up to this is none (5)")
    parser.add_argument("--all", action="store_true", help="list what neither side has, with the reasons")
    parser.add_argument("--format", help="text or json (text)")
    add_timing(parser)


def run(options: argparse.Namespace) -> int:
    """Print the comparison; exit 0 whatever it says."""
    from kvscope.commands._options import settings_of
    from kvscope.errors import UsageError, nearest
    from kvscope.result import comparison
    from kvscope.result.comparison import compare

    settings = settings_of(options)
    if settings.format not in ("text", "json"):
        raise UsageError(
            f"--format {settings.format!r}{nearest(settings.format, ('text', 'json'))}; expected text or json"
        )
    if not 0 < options.within < 100:
        raise UsageError(f"--within {options.within:g}: expected more than 0 and less than 100 per cent")
    names: list[str | None] = [None, None]
    if options.segments:
        names = [part.strip() for part in options.segments.split(",")]
        if len(names) != 2:
            raise UsageError(f"--segments {options.segments!r}: expected A,B")
    a, b = (_side(target, name, settings) for target, name in zip((options.a, options.b), names, strict=True))
    found = compare(a, b, options.within / 100)
    print(comparison.as_json(found) if settings.format == "json" else comparison.as_text(found, options.all))
    return 0


def _side(target: str, segment: str | None, settings: Settings) -> Side:
    import sys
    from contextlib import closing
    from pathlib import Path

    from kvscope.result import side
    from kvscope.sources import open_target
    from kvscope.store import Store
    from kvscope.watch import collect, fill

    if side.is_result(target):
        return side.of_result(Path(target))
    store = Store()
    with closing(open_target(target)) as source:
        read = collect(source, settings)
        fill(store, read)
        for notice in read.notices:
            print(f"kvscope: {notice}", file=sys.stderr)
        about = source.describe()
        tags = {"engine": about.engine, "version": about.version, **about.tags}
    return side.of_store(store, target, {key: value for key, value in tags.items() if value}, segment)
