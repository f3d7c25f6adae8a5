"""Every error a user can meet, and the exit code it ends in.

KvscopeError
├── UsageError       2  an option, a file or a playbook is wrong
├── SourceError      3  a target cannot be reached, or is not an engine
└── NotEnoughData    4  the target answered, but not with enough to judge

A message says what, where, what was expected and the nearest valid name. Exit code 1 is not an error: it means
that a finding reached ``--fail-on``. 130 means interrupted, 70 a fault of kvscope itself: ``kvscope.crash`` then leaves
a file that helps to mend it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from probes.border import lines_printable

EXIT_OK = 0
EXIT_FINDING = 1
EXIT_USAGE = 2
EXIT_SOURCE = 3
EXIT_NO_DATA = 4
EXIT_INTERNAL = 70
EXIT_INTERRUPTED = 130


class KvscopeError(Exception):
    """An error with one clear line for a person and an exit code for a script.

    What it quotes may be text of others, so nothing in it is left that a terminal would obey.
    """

    exit_code = EXIT_USAGE

    def __init__(self, message: str = "") -> None:
        super().__init__(lines_printable(message))


class UsageError(KvscopeError):
    """What the user wrote (option, config key, playbook) is wrong."""

    exit_code = EXIT_USAGE


class SourceError(KvscopeError):
    """The target cannot be reached or is not something kvscope can read."""

    exit_code = EXIT_SOURCE


class NotEnoughData(KvscopeError):
    """The target was read, but there is too little in it to say anything."""

    exit_code = EXIT_NO_DATA


def nearest(word: str, valid: Iterable[str]) -> str:
    """Return ``" (did you mean 'x'?)"`` for the closest valid word, or the empty string when none is close."""
    found = difflib.get_close_matches(word, list(valid), n=1, cutoff=0.6)
    return f" (did you mean {found[0]!r}?)" if found else ""
