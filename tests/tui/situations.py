"""Situations that the first screen must answer in, on real pages: one engine's capture, two, a fleet, a dead one.

Captures are those of ``KVSCOPE_CAPTURES``; pages of a fleet and of an engine that dies are served from this process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from kvscope.commands.replay import ReadAlready
from kvscope.config import Settings
from kvscope.playbook import load_all
from kvscope.session import Session
from kvscope.sources import open_target
from kvscope.store import Store
from kvscope.watch import collect, fill_pair
from tests.bench.pages import Pages

SHIPPED = Path(__file__).parents[2] / "samples" / "captures" / "admission-limited" / "pages.jsonl.gz"
CAPTURES = Path(os.environ.get("KVSCOPE_CAPTURES") or "captures of KVSCOPE_CAPTURES")
ONE = {
    "healthy": "gpu_healthy",
    "kv-full": "12_kv_full_queueing",
    "prefill": "06a_prefill_dominated",
    "llama-cpp": "cpu_llamacpp_slots_cap",
}
NAMES = (*ONE, "fp8-against-bf16", "fleet", "engine-down")
WATCHED_S = 12.0
"""Of what is served: a replica that stands out must surely do so."""


@contextmanager
def session_of(name: str) -> Iterator[Session]:
    """A session that has seen all there is to see of the situation."""
    books = load_all()
    with ExitStack() as stack:
        if name in ONE:
            session = Session(open_target(str(_pages(ONE[name])), speed=None), books)
        elif name == "fp8-against-bf16":
            store, settings = Store(), Settings()
            before, after = (stack.enter_context(closing(open_target(str(_pages(one))))) for one in _PAIR)
            read = collect(before, settings), collect(after, settings)
            fill_pair(store, *read, (before.describe().tags, after.describe().tags))
            session = Session(ReadAlready(after), books, store=store)
        else:
            pages = [_pages(one) for one in _FLEET] if name == "fleet" else [SHIPPED]
            servers = [stack.enter_context(Pages(one)) for one in pages]
            session = Session(open_target(",".join(server.url for server in servers)), books)
            _watch(session, WATCHED_S if name == "fleet" else WATCHED_S / 3)
            if name == "engine-down":
                servers[0].__exit__()
                _watch(session, 1.0)
        stack.callback(session.close)
        session.poll()
        session.diagnose_now()
        yield session


_PAIR = ("gpu_decode_bf16", "gpu_decode_fp8")
_FLEET = ("gpu_healthy", "gpu_healthy", "12_kv_full_queueing")


def _pages(capture: str) -> Path:
    return CAPTURES / capture / "pages.jsonl.gz"


def _watch(session: Session, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        session.poll()
        time.sleep(0.5)
