"""List the engines found on this machine: flight recorders (alive or dead) and ports that serve a known page.

`--clean` deletes the flight recorders of dead processes. They are evidence, so nothing else ever does.
"""

from __future__ import annotations

import argparse

GROUP = "watch an engine"
EXAMPLES = ("kvscope engines --format json",)


def configure(parser: argparse.ArgumentParser) -> None:
    """--clean."""
    parser.add_argument("--format", choices=("text", "json"), default="text", help="text or json (text)")
    parser.add_argument("--clean", action="store_true", help="delete the flight recorders of dead processes")


def run(options: argparse.Namespace) -> int:
    """Print one line an engine."""
    import sys

    if options.clean:
        from kvscope.errors import UsageError
        from probes.ring_reader import remove_stale
        from probes.runtime import RuntimeDirError

        try:
            removed = remove_stale()
        except (RuntimeDirError, OSError) as error:
            raise UsageError(str(error)) from error
        print(f"{len(removed)} flight recorders of dead processes deleted", file=sys.stderr)
    from dataclasses import asdict
    from json import dumps

    from kvscope.sources.discover import discover
    from kvscope.watch import told_of

    found = discover()
    vital = told_of(engine.target for engine in found if engine.alive)
    if options.format == "json":
        print(dumps([asdict(engine) | {"load": vital.get(engine.target, "")} for engine in found]))
        return 0
    for engine in found:
        load = f"; {vital[engine.target]}" if engine.target in vital else ""
        print(f"{engine.target:<32} {engine.says}{load}")
    if not found:
        print("no engine found; `kvscope demo` starts one", file=sys.stderr)
    return 0
