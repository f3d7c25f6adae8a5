"""Where flight recorders live, and whether the process behind one is still the process that wrote it."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

ENV_DIR = "KVSCOPE_RUNTIME_DIR"


class RuntimeDirError(Exception):
    """The runtime directory cannot be used; the message says which, why and what to set instead."""


def runtime_dir(*, create: bool = False) -> Path:
    """Return the user's runtime directory for rings and tokens (mode 0700 when created here).

    ``$KVSCOPE_RUNTIME_DIR``, else ``$XDG_RUNTIME_DIR/kvscope``, else ``<temp>/kvscope-<uid>``. A directory owned by
    somebody else, or in which others can write, is refused: they could swap the files under us.
    """
    path = _configured_dir()
    if create:
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise RuntimeDirError(_cannot_use(path, error.strerror or str(error))) from error
    if path.exists():
        info = path.stat()
        if not stat.S_ISDIR(info.st_mode):
            raise RuntimeDirError(_cannot_use(path, "it is not a directory"))
        if info.st_uid != os.getuid():
            raise RuntimeDirError(_cannot_use(path, f"it belongs to uid {info.st_uid}"))
        if info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise RuntimeDirError(_cannot_use(path, "others can write in it (chmod go-w)"))
        if create and not os.access(path, os.W_OK | os.X_OK):
            raise RuntimeDirError(_cannot_use(path, "it is not writable"))
    return path


def _configured_dir() -> Path:
    if configured := os.environ.get(ENV_DIR):
        return Path(configured)
    if session := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(session) / "kvscope"
    return Path(tempfile.gettempdir()) / f"kvscope-{os.getuid()}"


def _cannot_use(path: Path, why: str) -> str:
    return f"runtime directory {path}: {why}; expected a directory of yours (set {ENV_DIR} to another one)"


def process_start_ticks(pid: int) -> int | None:
    """Return the start time of a live process in clock ticks since boot, or None when there is no such process.

    Together with the pid it names a process for good: a reused pid has another start time. A zombie counts as dead.
    Where ``/proc`` is absent a live process answers 0.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() else _alive_without_proc(pid)
    except OSError:
        return None
    # The command name is in parentheses and may itself hold spaces and parentheses: count from the last one.
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else int(fields[19])


def is_stopped(pid: int) -> bool:
    """Whether a process was halted (SIGSTOP, a debugger): it is there, and does nothing."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text[text.rindex(")") + 2 :][:1] in ("T", "t")


def _alive_without_proc(pid: int) -> int | None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        return 0
    return 0
