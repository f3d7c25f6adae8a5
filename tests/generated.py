"""Write the synthetic recordings where playbooks name them. Git does not keep them: they follow from steady states.

A test session writes them when what they follow from is newer; ``python -m tests.generated`` does so by hand, for
``kvscope playbooks test``. Recordings of real engines have a third part in their names and are left alone.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECORDINGS, QUIET = ROOT / "samples/recordings", ROOT / "samples/quiet"
STAMP = RECORDINGS / ".written"
SOURCES = ("tests/states/*.yaml", "tests/*.py", "kvscope/recording/*.py", "probes/catalog.py")


def write() -> None:
    """Write every synthetic recording, and delete those that nothing describes any more."""
    # Imported late: only a session that writes needs them.
    from tests import situations, states

    STAMP.unlink(missing_ok=True)
    RECORDINGS.mkdir(exist_ok=True)
    written = {*states.write(RECORDINGS), *situations.write(RECORDINGS, QUIET)}
    for path in (*RECORDINGS.glob("*.jsonl"), *QUIET.glob("synthetic-*.jsonl")):
        if path not in written and (path.parent == QUIET or path.name.count(".") == 2):
            path.unlink()
    STAMP.touch()


def write_if_stale() -> None:
    """Write them when a source is newer than what stands there."""
    newest = max(path.stat().st_mtime for pattern in SOURCES for path in ROOT.glob(pattern))
    if not STAMP.exists() or STAMP.stat().st_mtime < newest:
        write()


if __name__ == "__main__":
    write()
