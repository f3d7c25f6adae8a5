"""Serve kvscope's commands to agents over standard input and output (Model Context Protocol).

Tools: diagnose, coverage, explain, show_rule, compare, verify, metrics, plan, recording. They read and change nothing;
with --allow-changes there is also try_change, which turns a built-in engine's knobs and puts them back. How an agent
should use them: docs/agents.md. Needs the extra `mcp`.
"""

from __future__ import annotations

import argparse

GROUP = "set up"
EXAMPLES = ("kvscope mcp",)


def configure(parser: argparse.ArgumentParser) -> None:
    """Whether tools may change anything."""
    parser.add_argument("--allow-changes", action="store_true", help="also offer the tool that turns an engine's knobs")


def run(options: argparse.Namespace) -> int:
    """Serve until standard input ends."""
    from kvscope.errors import EXIT_OK, UsageError

    try:
        from kvscope.agents import server
    except ImportError as error:
        raise UsageError(
            f"mcp: {error.name or error} is not installed; expected the extra: pip install 'kvscope[mcp]'"
        ) from None
    server(allow_changes=options.allow_changes).run("stdio")
    return EXIT_OK
