"""Three questions answered by the first screen alone, on real pages: what limits it, how much room is left, what first.

One capture is shipped; a folder of more is shown where ``KVSCOPE_CAPTURES`` names one.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kvscope.playbook import load_all
from kvscope.session import Session
from kvscope.sources import open_target
from kvscope.tui.app import KvscopeApp
from kvscope.tui.saving import plain

SHIPPED = Path(__file__).parents[2] / "samples" / "captures" / "admission-limited" / "pages.jsonl.gz"
MORE = os.environ.get("KVSCOPE_CAPTURES", "")
SIZES = [(80, 24), (120, 36), (160, 48)]
TOLD = {
    "gpu_healthy": ("clients send no more", "KV pool", "No fault seen"),
    "12_kv_full_queueing": ("the KV pool", "KV pool 1.", "give KV more memory"),
    "gpu_kv_small_preempt": ("the KV pool", "KV pool 1.", "fix"),
    "01_idle": ("it stands idle", "0 % used", "No load"),
    "cpu_llamacpp_healthy": ("clients send no more", "running", "No fault seen"),
}
"""Capture → what limits it, how much room is left, what to do first (or that there is nothing to do)."""


async def shown(page: Path, size: tuple[int, int]) -> str:
    """The first screen of a whole capture."""
    session = Session(open_target(str(page), speed=None), load_all())
    session.poll()
    app = KvscopeApp(session, interval_s=600)
    async with app.run_test(size=size) as pilot:
        for _ in range(3):
            app.poller.drain()
            await pilot.pause()
        return plain(app)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_a_capped_engine_says_what_limits_it_how_much_room_is_left_and_what_to_change(
    size: tuple[int, int],
) -> None:
    text = await shown(SHIPPED, size)
    assert "limit  the cap on running requests" in text
    assert "room   running cap" in text
    assert "KV pool" in text
    assert "raise the limit on running requests" in text
    assert "waiting 1" in text
    assert "p95" in text
    assert "Unknown" not in text
    assert "not drawn" not in text
    assert max(len(line) for line in text.splitlines()) <= size[0]


@pytest.mark.skipif(not MORE, reason="KVSCOPE_CAPTURES names no folder")
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("name", TOLD)
async def test_other_engines_answer_too(name: str, size: tuple[int, int]) -> None:
    text = " ".join((await shown(Path(MORE) / name / "pages.jsonl.gz", size)).split())
    for part in TOLD[name]:
        assert part in text
    assert "Unknown" not in text
    assert "not drawn" not in text
