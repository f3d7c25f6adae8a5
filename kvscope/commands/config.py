"""Print every setting with its value and where it came from."""

from __future__ import annotations

import argparse

GROUP = "set up"
EXAMPLES = ("kvscope config", "kvscope config --format json")


def configure(parser: argparse.ArgumentParser) -> None:
    """--format."""
    from kvscope.commands._options import add_listing

    add_listing(parser)


def run(options: argparse.Namespace) -> int:
    """Print the table; the runtime directory is listed too, for it decides what can be attached to."""
    from kvscope import config
    from kvscope.commands._options import as_json, settings_of, text_or_json
    from kvscope.errors import UsageError
    from probes.runtime import ENV_DIR, RuntimeDirError, runtime_dir

    _, origins = config.load({})
    try:
        directory = str(runtime_dir())
    except RuntimeDirError as error:
        raise UsageError(str(error)) from error
    rows = [(origin.name, str(origin.value) or "-", origin.origin) for origin in origins]
    rows.append(("runtime_dir", directory, f"environment {ENV_DIR} or XDG_RUNTIME_DIR, else the temporary directory"))
    if text_or_json(settings_of(options)):
        print(as_json([{"name": name, "value": value, "from": origin} for name, value, origin in rows]))
        return 0
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    for name, value, origin in rows:
        print(f"{name:<{widths[0]}}  {value:<{widths[1]}}  {origin}")
    return 0
