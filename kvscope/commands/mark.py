"""Start a named segment now, in everything that watches: dashboards, recordings, running diagnoses.

Call it right after changing something on a server, so that before and after can be compared. Built-in engines of this
user also write the mark into their own flight recorder.
"""

from __future__ import annotations

import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    """The segment's name."""
    parser.add_argument("name", metavar="NAME", help="of the segment that starts now, e.g. after")


def run(options: argparse.Namespace) -> int:
    """Leave the mark where every watcher looks, and in the recorders of living built-in engines."""
    import time
    from contextlib import suppress

    from kvscope.errors import SourceError
    from kvscope.sources import marks
    from kvscope.sources.control import EngineControl
    from probes.ring_reader import RingError, RingReader, find_rings

    if not options.name.strip() or len(options.name) > 64:
        from kvscope.errors import UsageError

        raise UsageError(f"mark {options.name!r}: expected a name of 1 to 64 characters")
    marks.append(options.name, time.time())
    told = 0
    for ring in find_rings():
        with suppress(RingError, SourceError):
            reader = RingReader(ring)
            alive = reader.is_alive()
            reader.close()
            if alive and EngineControl(ring).available:
                EngineControl(ring).mark(options.name)
                told += 1
    beside = f" and {told} built-in engine{'s' if told != 1 else ''}" if told else ""
    print(f"{options.name}: marked for whoever watches{beside}")
    return 0
