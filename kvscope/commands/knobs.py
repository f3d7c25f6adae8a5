"""Show what can be changed on a running built-in engine, and change it.

Without --set it prints every knob and the load, NAME=VALUE a line. `--fault NAME` sets everything that brings about
one known trouble (see `kvscope serve --fault`), `--fix NAME` the knobs that end it. Other engines have no such door.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

GROUP = "the built-in engine"
EXAMPLES = ("kvscope knobs 4711", "kvscope knobs 4711 --set kernels=block --mark after")


def configure(parser: argparse.ArgumentParser) -> None:
    """PID, changes, a name for the segment they start."""
    from kvscope.commands._options import add_listing

    parser.add_argument("target", metavar="PID", help="pid of a built-in engine or its launcher, or its .ring file")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a knob, or load.NAME")
    parser.add_argument("--fault", metavar="NAME", help="set the knobs and the load of a named fault")
    parser.add_argument("--fix", metavar="NAME", help="set the knobs that end a named fault")
    parser.add_argument("--mark", default="", metavar="NAME", help="name of the segment that begins with the change")
    add_listing(parser)


def run(options: argparse.Namespace) -> int:
    """Print every knob's value after the change; those just changed are marked."""
    import sys

    from kvscope import faults
    from kvscope.commands._options import as_json, settings_of, text_or_json
    from kvscope.sources.builtin import split_knobs
    from kvscope.sources.control import EngineControl

    changes: dict[str, str] = {}
    if options.fault:
        fault = faults.get(options.fault)
        if fault.flags:
            needs = " ".join(fault.options)
            print(f"kvscope: this fault is sized for an engine started with {needs}", file=sys.stderr)
        changes |= fault.knobs
    if options.fix:
        changes |= faults.get(options.fix).fix
    changes |= split_knobs(options.set)
    control = EngineControl(_ring(options.target))
    before = control.knobs()
    after = control.set(changes, options.mark) if changes or options.mark else before
    if text_or_json(settings_of(options)):
        print(as_json([{"name": name, "value": value, "was": before.get(name, "")} for name, value in after.items()]))
        return 0
    for name, value in after.items():
        was = before.get(name, "")
        print(f"{name}={value}" + (f"  (was {was})" if was != value else ""))
    return 0


def _ring(target: str) -> Path:
    from pathlib import Path

    from kvscope.errors import UsageError
    from kvscope.sources import open_target

    about = open_target(target).describe()
    if about.kind != "ring":
        raise UsageError(f"{target} is no built-in engine, expected its pid: only that has knobs to change")
    return Path(about.target)
