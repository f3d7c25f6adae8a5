"""What is left behind when kvscope itself is at fault: where it was, never what it was reading."""

from __future__ import annotations

import os
import platform
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from probes.border import printable
from probes.version import __version__

SECRET = ("--header", "--bearer-env", "--webhook")
"""Options whose value is not written down."""
_FRAMES = 40


def report(error: BaseException, argv: Sequence[str]) -> str:
    """Write a reproduction file and return the one line that a person reads.

    The file holds versions, the command line and the places in our code. Neither the error's text nor any value is in
    it: both may quote what was read, prompts among it.
    """
    place = _place(error)
    what = f"a fault of kvscope itself ({type(error).__name__} at {place})"
    try:
        path = _write("\n".join(_lines(error, argv)) + "\n")
    except OSError as why:
        return f"{what}; no report could be written ({why.strerror})"
    return f"{what}; what is needed to mend it, without anything that was read, is in {path}"


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if f"{os.sep}kvscope{os.sep}" in frame.filename] or frames
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "an unknown place"


def _lines(error: BaseException, argv: Sequence[str]) -> list[str]:
    frames = traceback.extract_tb(error.__traceback__)
    root = str(Path(__file__).resolve().parents[1]) + os.sep
    return [
        f"kvscope {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}",
        f"at {time.strftime('%Y-%m-%d %H:%M:%S')}: kvscope {' '.join(_without_secrets(argv))}",
        f"{type(error).__name__} (its text is left out), raised at:",
        *(f"  {frame.filename.removeprefix(root)}:{frame.lineno} {frame.name}" for frame in frames[-_FRAMES:]),
    ]


def _without_secrets(argv: Sequence[str]) -> list[str]:
    """Return the words of a command line, without secrets: values of ``SECRET`` options and what follows a ``?``."""
    kept, hide = [], False
    for word in argv:
        option, equals, _ = word.partition("=")
        if hide:
            word = "…"
        elif option in SECRET and equals:
            word = f"{option}=…"
        elif "?" in word:
            word = word.partition("?")[0] + "?…"
        hide = word in SECRET
        kept.append(printable(word, 200))
    return kept


def _write(text: str) -> Path:
    handle, name = tempfile.mkstemp(prefix="kvscope-fault-", suffix=".txt")
    with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    return Path(name)
