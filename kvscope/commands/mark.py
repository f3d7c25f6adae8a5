"""Start a named segment now, in everything that watches: dashboards, recordings, running diagnoses.

Call it right after changing something on a server, so that before and after can be compared. Built-in engines of this
user also write the mark into their own flight recorder.
"""

from __future__ import annotations

import argparse

GROUP = "watch an engine"
EXAMPLES = ("kvscope mark after",)


def configure(parser: argparse.ArgumentParser) -> None:
    """The segment's name, and what is known of it."""
    parser.add_argument("name", metavar="NAME", help="of the segment that starts now, e.g. after")
    parser.add_argument(
        "tags", metavar="KEY=VALUE", nargs="*", help="what is known of it: workload=chat device=H200 offered_load=4/s"
    )


def run(options: argparse.Namespace) -> int:
    """Leave the mark where every watcher looks, and in the recorders of living built-in engines."""
    import time
    from contextlib import suppress

    from kvscope.commands._told import tags_of
    from kvscope.errors import SourceError
    from kvscope.sources import marks
    from kvscope.sources.control import EngineControl
    from probes.border import lines_printable
    from probes.ring_reader import RingError, RingReader, find_rings

    if not options.name.strip() or len(options.name) > 64:
        from kvscope.errors import UsageError

        raise UsageError(f"mark {options.name!r}: expected a name of 1 to 64 characters")
    tags = tags_of(options.tags, "mark")
    marks.append(options.name, time.time(), tags)
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
    print(f"{lines_printable(options.name)}: marked for whoever watches{beside}")
    return 0
