"""Which playbook says what of a capture of a running server, the controls included: on those nothing is shown at all.

The captures are in the folder that ``KVSCOPE_CAPTURES`` names; without it there is nothing to read.
"""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from kvscope.diagnose import diagnose
from kvscope.playbook import load_all
from kvscope.sources import open_target
from kvscope.store import Store

ELSEWHERE = os.environ.get("KVSCOPE_CAPTURES", "")
FOLDERS = sorted(path.parent for path in Path(ELSEWHERE).glob("*/pages.jsonl.gz")) if ELSEWHERE else []
FOUND = {
    "04a_client_bound_think": {"client-bound": "likely"},
    "05_mixed_longtail": {"prefill-holds-up-decode": "likely"},
    "06a_prefill_dominated": {"prefill-bound": "possible"},
    "07_kv_too_small_preempt": {"kv-short-with-preemption": "likely"},
    "08_admission_limited": {"admission-capped": "likely"},
}
"""Capture → playbooks and their verdicts. 06a is only possible: whether prompts come back, no page of vLLM says."""
ABSTAINS = {"11_prefix_thrash_pool_small": "prefix_lost_share", "20b_kv_events_thrash": "prefix_lost_share"}
"""Captures in which unique and reusable prompts look alike → the signal that would tell them apart."""
NOTICED = {"13_external_kv_connector": ("Prefixes are served from a slower tier, not from the pool",)}
"""Captures of which something is told that is no fault → the titles of the playbooks that tell it."""
pytestmark = pytest.mark.skipif(not FOLDERS, reason="KVSCOPE_CAPTURES names no folder of captures")


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_playbooks_say_what_is_known_of_a_capture_and_nothing_else(folder: Path) -> None:
    store = Store()
    with closing(open_target(str(folder / "pages.jsonl.gz"))) as source:
        poll = source.poll()
        store.add(poll.samples)
        for mark in poll.marks:
            store.mark(mark)
        found = diagnose(store, load_all(), source.describe())
    assert {one.id: one.verdict for one in found.findings} == FOUND.get(folder.name, {})
    assert tuple(line.partition(":")[0] for line in found.notices) == NOTICED.get(folder.name, ())
    if folder.name in ABSTAINS:
        missing = {one.signal: one.remedy for one in found.unknown}
        assert "KV events" in missing[ABSTAINS[folder.name]]
