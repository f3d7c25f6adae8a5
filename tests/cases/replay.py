"""Public trouble reports as streams: their figures under canonical names, the better run as the baseline.

The reading is the product's (``kvscope.sources.stated``); here it only becomes a stream with a little noise.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from kvscope.sources.stated.document import read
from kvscope.sources.stated.source import StatedSource
from kvscope.store import Store

SYNONYMS: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "synonyms.yaml").read_text(encoding="utf-8"))
"""Causes by other names: what a report must not be told, and the slugs of playbooks that would tell it."""


def store_of(path: Path) -> tuple[Store, StatedSource]:
    """Return a report's figures as a store, and the source they came from."""
    source = StatedSource(read(path), path, path.stat().st_mtime)
    poll, store = source.poll(), Store()
    for mark in poll.marks:
        store.mark(mark)
    store.add(poll.samples)
    return store, source
