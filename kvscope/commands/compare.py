"""Put two recordings, targets or benchmark results side by side: what changed, what did not, what cannot be told.

A and B are anything `diagnose` reads, or the JSON results of `bench` commands. Of a recording with several segments
the last is taken; --segments names others, so that one recording can be compared with itself.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kvscope.errors import EXIT_FINDING, EXIT_NO_DATA, EXIT_OK

if TYPE_CHECKING:
    from kvscope.config import Settings
    from kvscope.result.comparison import Passage, Side

GROUP = "compare and verify"
EXAMPLES = ("kvscope compare before.db after.db",)


def configure(parser: argparse.ArgumentParser) -> None:
    """Both sides, and how much difference counts."""
    from kvscope.commands._options import TARGET_HELP, add_timing
    from kvscope.commands._told import add_price, add_said

    parser.add_argument("a", metavar="A", help=f"before: {TARGET_HELP}, or a benchmark's JSON result")
    parser.add_argument("b", metavar="B", help="after: the same")
    parser.add_argument("--segments", metavar="A,B", help="the segment of each side (default: the last one)")
    parser.add_argument("--within", type=float, default=5.0, metavar="PERCENT", help="a change up to this is none (5)")
    parser.add_argument("--all", action="store_true", help="list what neither side has, with the reasons")
    parser.add_argument("--format", help="text or json (text)")
    parser.add_argument(
        "--fail-if",
        dest="gates",
        metavar="COND",
        action="append",
        default=[],
        help="exit 1 where this is so, 4 where it cannot be told: 'tpot_p50 > +5%%', 'prefix_hit_rate < -2pp'",
    )
    add_said(parser)
    add_price(parser)
    add_timing(parser)


def run(options: argparse.Namespace) -> int:
    """Print the comparison; exit 0 whatever it says, unless a gate was given."""
    from kvscope.commands._options import settings_of
    from kvscope.commands._told import price_of, said_of
    from kvscope.errors import NotEnoughData, UsageError, nearest
    from kvscope.result import comparison
    from kvscope.result.comparison import compare, parse, passed, with_said

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
    price = price_of(options)
    a, b = (_side(target, name, settings, price) for target, name in zip((options.a, options.b), names, strict=True))
    said = said_of(options)
    a, b = (with_said(one, said.same, said.changed, index) for index, one in enumerate((a, b)))
    found = compare(a, b, options.within / 100)
    gates = [parse(text) for text in options.gates]
    print(comparison.as_json(found) if settings.format == "json" else comparison.as_text(found, options.all))
    if not found.changes:
        raise NotEnoughData(
            f"nothing comparable: {options.a} has {len(a.quantities)} figures, {options.b} has {len(b.quantities)}, "
            "and not one in common"
        )
    return _judged([passed(gate, found) for gate in gates])


def _judged(passages: list[Passage]) -> int:
    """Tell how each gate came out: 1 where one failed, 4 where one cannot be told, else 0."""
    import sys

    for one in passages:
        print(f"{one.outcome.upper():<12} {one.gate.text}: {one.why}", file=sys.stderr)
    outcomes = {one.outcome for one in passages}
    return EXIT_FINDING if "fail" in outcomes else EXIT_NO_DATA if "cannot tell" in outcomes else EXIT_OK


def _side(target: str, segment: str | None, settings: Settings, price: float | None = None) -> Side:
    import sys
    from contextlib import closing
    from dataclasses import replace
    from pathlib import Path

    from kvscope.account import account, words
    from kvscope.report.json import account_as_json
    from kvscope.result import comparison
    from kvscope.sources import open_target
    from kvscope.sources.find import kind_of_file
    from kvscope.store import Store
    from kvscope.watch import collect, fill
    from probes.sample import Sample

    if comparison.is_result(target):
        return comparison.of_result(Path(target))
    if Path(target).is_file() and kind_of_file(Path(target)) == "result":
        return comparison.of_benchmark(Path(target))
    store = Store()
    with closing(open_target(target)) as source:
        read = collect(source, settings)
        fill(store, read)
        for notice in read.notices:
            print(f"kvscope: {notice}", file=sys.stderr)
        about = source.describe()
        if price is not None and store.span is not None:
            store.add([Sample("config.price_per_hour", price, store.span[0], ())])
        tags = {"engine": about.engine, "version": about.version, **about.tags}
    found = comparison.of_store(store, target, {key: value for key, value in tags.items() if value}, segment)
    limits = account(store, store.segment(found.segment))
    return replace(found, limit=words.headline(limits), account=account_as_json(limits))
