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
    from kvscope.commands._result import add_output

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
    """Print the result; exit 0 when it was measured, whatever it says, and 1 when a check among the benches failed."""
    import importlib

    from kvscope.commands._result import check_output, show
    from kvscope.errors import EXIT_FINDING, EXIT_OK

    check_output(options)
    found = importlib.import_module(f"kvscope.bench.{options.bench}").measure(options)
    show(found, options)
    return EXIT_FINDING if found.failed else EXIT_OK
