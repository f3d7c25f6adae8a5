"""Every screen at three sizes, as text, from one recording and one playbook that are kept beside the pictures.

``KVSCOPE_GOLDEN=write pytest tests/tui/test_golden.py`` writes them anew; look at the difference before committing it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from kvscope.playbook import load_playbook
from kvscope.session import Session
from kvscope.sources import open_target
from kvscope.tui.app import KvscopeApp
from kvscope.tui.saving import plain
from kvscope.tui.screens import discover

HERE = Path(__file__).parent / "golden"
WRITE = os.environ.get("KVSCOPE_GOLDEN") == "write"
SIZES = ((80, 24), (120, 36), (160, 48))
PINNED = "8.2.8"


@pytest.fixture(autouse=True)
def _one_timezone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.skipif(version("textual") != PINNED, reason=f"the pictures were made with textual {PINNED}")
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_every_screen_looks_as_it_did(size: tuple[int, int]) -> None:
    source = open_target(str(HERE / "recording.jsonl"), speed=None)
    session = Session(source, (load_playbook(HERE / "memory-down-throughput-flat.yaml"),))
    app = KvscopeApp(session, interval_s=600)
    differ = []
    async with app.run_test(size=size) as pilot:
        for _ in range(3):
            app.poller.drain()
            await pilot.pause()
        session.next_baseline()
        screens = [("overview", "b")] + [(board.name_of(), board.KEY) for board in discover()]
        for name, key in screens:
            if name != "overview":
                await pilot.press(key)
            for _ in range(2):
                app.poller.drain()
                await pilot.pause()
            if not same(f"{name}-{size[0]}x{size[1]}.txt", plain(app)):
                differ.append(name)
    assert not differ, f"not as before: {', '.join(differ)}; what they look like now is in {HERE}/*.new"


def same(name: str, text: str) -> bool:
    """Compare with what is kept; what differs is written beside it."""
    kept, fresh = HERE / name, HERE / f"{name}.new"
    if WRITE:
        kept.write_text(text, encoding="utf-8")
    if kept.is_file() and kept.read_text(encoding="utf-8") == text:
        fresh.unlink(missing_ok=True)
        return True
    fresh.write_text(text, encoding="utf-8")
    return False
