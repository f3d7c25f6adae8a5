"""What is piped in: a log is read as it comes; anything else is kept in a file of its own and opened by what it is."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from kvscope.errors import SourceError
from kvscope.sources.source import Source

_FIRST = 1 << 16
_MOST = 512 << 20


def open_piped() -> Source:
    """Open standard input. SourceError when nothing is piped in, or it is nothing that is read."""
    from kvscope.sources import open_file_target
    from kvscope.sources.logs.source import LogSource, detect

    try:
        descriptor = sys.stdin.fileno()
    except (OSError, ValueError, AttributeError) as error:
        raise SourceError("standard input: there is none; expected a log, a page or figures piped in") from error
    start = b""
    while len(start) < _FIRST:
        piece = os.read(descriptor, _FIRST)
        start += piece
        if not piece or (start.count(b"\n") and detect(start)):
            break
    if detect(start):
        return LogSource(None, start=start)
    return open_file_target(_kept(descriptor, start))


def _kept(descriptor: int, start: bytes) -> Path:
    """Write what comes into a file that goes with this process."""
    if not start.strip():
        raise SourceError("standard input: empty; expected a log, a page or figures piped in")
    # Only its name outlives the block: the file is removed when the interpreter ends.
    file = tempfile.NamedTemporaryFile(prefix="kvscope-stdin-", delete=False)  # noqa: SIM115
    with file:
        size = file.write(start)
        while piece := os.read(descriptor, 1 << 20):
            size += file.write(piece)
            if size > _MOST:
                raise SourceError(f"standard input: more than {_MOST >> 20} MiB that are no log; expected less")
    path = Path(file.name)
    import atexit

    atexit.register(path.unlink, missing_ok=True)
    return path
