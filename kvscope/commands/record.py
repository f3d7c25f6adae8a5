"""Record what a target reports into one file, for replay, diagnosis or a colleague. Prompt text is never in it.

Ctrl-C or SIGTERM ends it in good order; after SIGKILL at most the last second is missing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from kvscope.sources.source import Description

GROUP = "watch an engine"
EXAMPLES = (
    "kvscope record http://localhost:8000 -o before.db",
    "kvscope record http://localhost:8000 --config config.json --gpu H200 -o before.db",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """TARGET, the file, and how long."""
    from kvscope.commands._options import add_target, add_timing
    from kvscope.commands._told import add_told

    add_target(parser)
    add_told(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="where to (default kvscope-<time>.db)")
    parser.add_argument(
        "--tag",
        dest="tags",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="what is known of the run: workload=chat device=H200",
    )
    parser.add_argument("--force", action="store_true", help="replace an existing file")
    parser.add_argument(
        "--duration", type=float, metavar="S", help="stop after this many seconds (default: until Ctrl-C)"
    )
    add_timing(parser, duration=False)


@contextmanager
def _handled(number: int, handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    import signal

    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Give a new file to write, which is ``path`` from the first tick on: the old one is replaced, never emptied."""
    import os

    from kvscope.errors import UsageError
    from kvscope.recording import locked

    if not path.exists():
        yield path
        return
    beside = path.with_name(f"{path.name}.new")
    if beside.exists():
        raise UsageError(f"{beside}: another recorder writes it, or was killed; rename or delete it")
    # Held until it is replaced: what another recorder is writing would be lost, and it would write to no name.
    handle = locked(path)
    try:
        yield beside
    finally:
        if beside.exists():
            os.replace(beside, path)
        os.close(handle)


def _described(about: Description, options: argparse.Namespace, tags: dict[str, str]) -> Description:
    """Return what is written at the head: who said what, and the model and device that a person named."""
    import json
    from dataclasses import replace

    from kvscope.sources.settings import load_model

    device = {"device": options.gpu} if options.gpu else {}
    config = json.dumps(load_model(options.config)) if options.config else about.config
    return replace(about, tags={**about.tags, **device, **tags}, config=config)


def run(options: argparse.Namespace) -> int:
    """Record until the target ends, the time is over or Ctrl-C; what was recorded is kept in every case."""
    import signal
    import time
    from contextlib import closing, suppress

    from kvscope.commands._options import output, settings_of
    from kvscope.commands._told import tags_of, with_told
    from kvscope.progress import Line
    from kvscope.recording import Recorder
    from kvscope.sources import open_target
    from probes.border import lines_printable

    tags = tags_of(options.tags, "--tag")
    path = output(options.output or time.strftime("kvscope-%Y%m%d-%H%M%S.db"), options, options.target)
    limit, settings = options.duration, settings_of(argparse.Namespace(interval=options.interval))
    line, ticks, began = Line(), 0, time.monotonic()
    with (
        closing(with_told(open_target(options.target, machine=True), options)) as source,
        # Only now is it certain that there is something to write: what is replaced stays until then, and the old
        # file is taken away by the new one's taking its place.
        _replacing(path) as beside,
        closing(Recorder(beside, _described(source.describe(), options, tags))) as recorder,
    ):
        # A service manager ends what it started by SIGTERM, and a background job of a script hears no SIGINT.
        with suppress(KeyboardInterrupt), _handled(signal.SIGTERM, signal.default_int_handler):
            while limit is None or time.monotonic() - began < limit:
                poll = source.poll()
                recorder.write(poll)
                ticks += 1
                line.show(f"recording {source.describe().target} → {path} … {time.monotonic() - began:.0f} s")
                if poll.ended:
                    break
                time.sleep(settings.interval)
        line.wipe()
    print(f"{lines_printable(str(path))}: {ticks} ticks in {time.monotonic() - began:.0f} s")
    return 0
