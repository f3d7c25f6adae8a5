"""Sweep block size, importance and what is kept together on the built-in engine, and propose one setting.

The same as `kvscope bench tune`, whose help says how it chooses.
"""

from __future__ import annotations

import argparse

GROUP = "plan and measure"
EXAMPLES = ("kvscope tune --quick",)


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the benchmark."""
    from kvscope.bench import tune
    from kvscope.commands.bench import add_output

    tune.configure(parser)
    add_output(parser)


def run(options: argparse.Namespace) -> int:
    """Measure, print the table and the proposal; exit 0 when it was measured."""
    from kvscope.commands import bench

    options.bench = "tune"
    return bench.run(options)
