"""Open the dashboard on a running engine; detach with q, the engine never notices."""

from __future__ import annotations

import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    """TARGET and how often to look."""
    from kvscope.commands._dashboard import add_web
    from kvscope.commands._options import add_playbooks, add_target, add_timing

    add_target(parser)
    add_timing(parser, duration=False)
    add_playbooks(parser)
    add_web(parser)


def run(options: argparse.Namespace) -> int:
    """Run the dashboard until it is quit."""
    from kvscope.commands._dashboard import show
    from kvscope.commands._options import settings_of
    from kvscope.sources import open_target

    if options.web:
        from kvscope.commands._dashboard import serve_page

        given = {"--interval": options.interval, "--playbooks": options.playbooks}
        words = [word for name, value in given.items() if value is not None for word in (name, str(value))]
        return serve_page(["attach", options.target, *words], options.web_address)
    return show(open_target(options.target, machine=True, sliced=True, follow=True), settings_of(options))
