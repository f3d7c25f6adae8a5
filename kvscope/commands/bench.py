"""Measure before and after a change: load, accuracy, block sizes, the cost of probes.

Table and plots come here, JSON and one HTML page that needs no network on demand (-o).
`kvscope bench NAME --help` tells each one's options. Two results are held against each other by `kvscope compare`.
"""

from __future__ import annotations

import argparse


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
        sub.add_argument("--format", help="text or json (text)")
        sub.add_argument("-o", "--output", metavar="FILE", help="also write the result: .json, or .html as one page")


def run(options: argparse.Namespace) -> int:
    """Print the result; exit 0 when it was measured, whatever it says, and 1 when a check among the benches failed."""
    import importlib
    import os
    import shutil
    import sys
    from pathlib import Path

    from kvscope.bench.result import html, result, text
    from kvscope.errors import EXIT_FINDING, EXIT_OK, UsageError, nearest

    wanted = options.format or "text"
    if wanted not in ("text", "json"):
        raise UsageError(f"--format {wanted!r}{nearest(wanted, ('text', 'json'))}; expected text or json")
    output = Path(options.output) if options.output else None
    if output is not None and output.suffix not in (".json", ".html"):
        raise UsageError(f"--output {output}: expected a name that ends in .json or .html")
    found = importlib.import_module(f"kvscope.bench.{options.bench}").measure(options)
    if output is not None:
        result.write(output, html.render(found) if output.suffix == ".html" else result.as_json(found) + "\n")
    if wanted == "json":
        print(result.as_json(found))
    else:
        colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        print(text.render(found, shutil.get_terminal_size((80, 24)).columns, colour))
    return EXIT_FINDING if found.failed else EXIT_OK
