"""Three questions answered by the first screen alone, on real pages: what limits it, how much room is left, what first.

One capture is shipped; a folder of more is shown where ``KVSCOPE_CAPTURES`` names one.
"""

from __future__ import annotations

import os

import pytest

from kvscope.playbook import load_all
from kvscope.session import Session
from kvscope.sources import open_target
from kvscope.tui.app import KvscopeApp
from kvscope.tui.ordering import plain
from tests.tui.situations import NAMES, SHIPPED, session_of

MORE = os.environ.get("KVSCOPE_CAPTURES", "")
SIZES = [(80, 24), (120, 36), (160, 48)]
ANSWERS = {
    "healthy": ("limit clients send no more", "room KV pool", "No fault seen"),
    "kv-full": ("limit the KV pool", "room KV pool 1.", "fix store KV in fewer bits"),
    "prefill": ("limit clients send no more", "room KV pool", "fix compute fewer prompt tokens in a step"),
    "fp8-against-bf16": ("costs more than it saves", "room KV pool 1.", "fix put the former KV type back"),
    "llama-cpp": (
        "limit the cap on running requests",
        "room running cap 1.",
        "fix raise the limit on running requests",
    ),
    "fleet": ("replica 127.0.0.1: the KV pool", "room KV pool", "fix compare its flags"),
    "engine-down": ("DOWN Engine down since", "room", "first look whether its process runs"),
}
"""What limits it, how much room is left, what to change first (or that there is nothing to change)."""


async def shown(session: Session, size: tuple[int, int]) -> str:
    """The first screen."""
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
    session = Session(open_target(str(SHIPPED), speed=None), load_all())
    session.poll()
    text = await shown(session, size)
    assert "limit   the cap on running requests" in text
    assert "room    running cap" in text
    assert "KV pool" in text
    assert "raise the limit on running requests" in text
    assert "waiting 1" in text
    assert "p95" in text
    assert "Unknown" not in text
    assert "not drawn" not in text
    assert max(len(line) for line in text.splitlines()) <= size[0]


@pytest.mark.parametrize("name", NAMES)
async def test_every_situation_is_answered_at_every_size(name: str) -> None:
    if not MORE and name != "engine-down":
        pytest.skip("KVSCOPE_CAPTURES names no folder")
    with session_of(name) as session:
        for size in SIZES:
            text = await shown(session, size)
            words = " ".join("".join(char for char in text if char not in "│╭╮╰╯─").split())
            for answer in ANSWERS[name]:
                assert missing(answer, words) == []
            assert "Unknown" not in text
            assert "not drawn" not in text
            assert max(len(line) for line in text.splitlines()) <= size[0]


def missing(answer: str, words: str) -> list[str]:
    """What of an answer does not stand on the screen: its label, where it has one, or any word of the rest."""
    label, _, rest = answer.partition(" ")
    return [part for part in (label, *rest.split()) if part.lower() not in words.lower()]
