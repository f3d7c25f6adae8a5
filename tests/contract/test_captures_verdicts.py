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
ADMISSION, PREFILL, STALLS = "admission_limited", "prefill_compute_bound", "prefill_decode_interference"
PREEMPTED, QUEUED = "kv_capacity_preemption", "kv_capacity_queue"
MUST = {
    "04a_client_bound_think": "outside_engine_client_or_frontend",
    "05_mixed_longtail": STALLS,
    "06a_prefill_dominated": PREFILL,
    "07_kv_too_small_preempt": PREEMPTED,
    "08_admission_limited": ADMISSION,
    "12_kv_full_queueing": QUEUED,
    "16_queue_limit_rejections": "admission_rejected",
    "cpu_dynamo_cap": ADMISSION,
    "cpu_llamacpp_slots_cap": ADMISSION,
    "cpu_vllm_cap_quiet": ADMISSION,
    "cpu_vllm_long_prefill": STALLS,
    "cpu_vllm_preempt_quiet": PREEMPTED,
    "gpu_kv_small_preempt": PREEMPTED,
    "gpu_no_offload": QUEUED,
}
"""Capture → the cause that must be among the first two."""
MAY = {
    "06a_prefill_dominated": {STALLS},
    "07_kv_too_small_preempt": {QUEUED},
    "11_prefix_thrash_pool_small": {PREFILL, STALLS, "prefix_working_set_exceeds_pool"},
    "12_kv_full_queueing": {PREFILL, STALLS},
    "20a_kv_events_unique": {PREFILL, STALLS},
    "20b_kv_events_thrash": {PREFILL, STALLS, "prefix_working_set_exceeds_pool"},
    "cpu_llamacpp_kvtype_f16": {ADMISSION},
    "cpu_llamacpp_kvtype_q8": {ADMISSION},
    "cpu_llamacpp_pool_small_unified": {PREFILL},
    "cpu_vllm_long_prefill": {PREFILL},
    "cpu_vllm_preempt_quiet": {QUEUED},
    "cpu_vllm_prefix_thrash": {PREFILL, STALLS, "prefix_working_set_exceeds_pool"},
    "gpu_kv_small_preempt": {QUEUED},
    "gpu_no_offload": {PREFILL, STALLS, "prefix_working_set_exceeds_pool"},
}
"""Capture → causes that are true beside it: what the same run shows at the same time, or a step of the same chain."""
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
    named = [one.slug for one in found.findings if one.verdict in ("likely", "possible")]
    must = MUST.get(folder.name, "")
    assert set(named) <= MAY.get(folder.name, set()) | ({must} if must else set())
    assert not must or must in list(dict.fromkeys(named))[:2]
    assert tuple(line.partition(":")[0] for line in found.notices) == NOTICED.get(folder.name, ())
    if folder.name in ABSTAINS:
        missing = {one.signal: one.remedy for one in found.unknown}
        assert "KV events" in missing[ABSTAINS[folder.name]]
