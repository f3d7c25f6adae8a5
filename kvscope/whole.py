"""Reading a recording whole: source, store and description in one step."""

from __future__ import annotations

from pathlib import Path

from kvscope.sources import open_target
from kvscope.sources.source import Description, Source
from kvscope.store import Store


def read_whole(path: Path) -> tuple[Store, Description]:
    """Return everything a file holds and what it says of itself; errors of the source pass through."""
    return drain(open_target(str(path)))


def drain(source: Source) -> tuple[Store, Description]:
    """Return everything a source gives until it ends, and what it says of itself; it is closed then."""
    store = Store()
    try:
        while True:
            poll = source.poll()
            store.add(poll.samples)
            for mark in poll.marks:
                store.mark(mark)
            if poll.ended:
                return store, source.describe()
    finally:
        source.close()
