"""Open the dashboard on a running engine; detach with q, the engine never notices."""

from __future__ import annotations

import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    """TARGET and how often to look."""
    from kvscope.commands._options import add_playbooks, add_target, add_timing

    add_target(parser)
    add_timing(parser, duration=False)
    add_playbooks(parser)


def run(options: argparse.Namespace) -> int:
    """Run the dashboard until it is quit."""
    from kvscope.commands._dashboard import show
    from kvscope.commands._options import settings_of
    from kvscope.sources import open_target

    return show(open_target(options.target, machine=True), settings_of(options))
