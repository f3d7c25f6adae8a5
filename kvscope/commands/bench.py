"""Measure before and after a change: load, accuracy, block sizes, the cost of probes.

Table and plots come here, JSON and one HTML page that needs no network on demand (-o).
`kvscope bench NAME --help` tells each one's options. Two results are held against each other by `kvscope compare`.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvscope.result.result import Result

GROUP = "plan and measure"
EXAMPLES = ("kvscope bench load http://localhost:8000 --clients 1,4,16 -o before.json",)


def configure(parser: argparse.ArgumentParser) -> None:
    """One subcommand a benchmark."""
    import importlib

    from kvscope import bench

    subparsers = parser.add_subparsers(dest="bench", metavar="NAME", required=True)
    for name in bench.names():
        module = importlib.import_module(f"kvscope.bench.{name}")
        summary, _, rest = (module.__doc__ or "").partition("\n\n")
        sub = subparsers.add_parser(
            name, help=summary, description=f"{summary}\n\n{rest}", formatter_class=argparse.RawDescriptionHelpFormatter
        )
        module.configure(sub)
        add_output(sub)


def run(options: argparse.Namespace) -> int:
    """Print the result; exit 0 when it was measured, 1 when a check among the benches failed, 4 when it cannot tell."""
    import importlib

    from kvscope.errors import EXIT_FINDING, EXIT_NO_DATA, EXIT_OK

    check_output(options)
    found = importlib.import_module(f"kvscope.bench.{options.bench}").measure(options)
    show(found, options)
    return EXIT_FINDING if found.failed else EXIT_NO_DATA if found.untold else EXIT_OK


def add_output(parser: argparse.ArgumentParser) -> None:
    """--format and -o."""
    parser.add_argument("--format", help="text or json (text)")
    parser.add_argument("-o", "--output", metavar="FILE", help="also write the result: .json, or .html as one page")


def check_output(options: argparse.Namespace) -> None:
    """UsageError before anything is measured, not after."""
    from pathlib import Path

    from kvscope.errors import UsageError, nearest

    wanted = options.format or "text"
    if wanted not in ("text", "json"):
        raise UsageError(f"--format {wanted!r}{nearest(wanted, ('text', 'json'))}; expected text or json")
    if options.output and Path(options.output).suffix not in (".json", ".html"):
        raise UsageError(f"--output {options.output}: expected a name that ends in .json or .html")


def show(found: Result, options: argparse.Namespace) -> None:
    """Write the file if one was asked for, then print."""
    import os
    import shutil
    import sys
    from pathlib import Path

    from kvscope.result import html, result, text

    if options.output:
        page = html.render(found) if options.output.endswith(".html") else result.as_json(found) + "\n"
        result.write(Path(options.output), page)
    if options.format == "json":
        print(result.as_json(found))
    else:
        colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        print(text.render(found, shutil.get_terminal_size((80, 24)).columns, colour))
