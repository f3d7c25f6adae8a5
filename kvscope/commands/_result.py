"""Where a benchmark's result goes: the terminal as text or JSON, and a file."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvscope.bench.result.result import Result


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

    from kvscope.bench.result import html, result, text

    if options.output:
        page = html.render(found) if options.output.endswith(".html") else result.as_json(found) + "\n"
        result.write(Path(options.output), page)
    if options.format == "json":
        print(result.as_json(found))
    else:
        colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        print(text.render(found, shutil.get_terminal_size((80, 24)).columns, colour))
