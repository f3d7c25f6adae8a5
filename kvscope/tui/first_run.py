"""What to say to somebody who opens the dashboard for the first time; said once."""

from __future__ import annotations

import os
from pathlib import Path

HINT = "? shows every key. 2 opens the diagnosis, b makes everything so far the baseline, space stops time, q quits."


def hint(state: Path | None = None) -> str:
    """The hint, the first time it is asked for; empty ever after, and where that cannot be remembered."""
    state = state or Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    seen = state / "kvscope" / "welcomed"
    try:
        seen.parent.mkdir(parents=True, exist_ok=True)
        seen.touch(exist_ok=False)
    except OSError:
        return ""
    return HINT
