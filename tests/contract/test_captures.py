"""Signals computed from pages agree with what the client measured, and the diagnosis with what is known to be true.

Two captures are shipped; a folder of more is checked where ``KVSCOPE_CAPTURES`` names one.
"""

from __future__ import annotations

import gzip
import json
import os
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from kvscope import signals
from kvscope.diagnose import diagnose
from kvscope.finding import Diagnosis
from kvscope.playbook import load_all
from kvscope.signals.reading import Reading
from kvscope.sources import open_target
from kvscope.store import Segment, Store

SHIPPED = Path(__file__).parents[2] / "samples" / "captures"
ELSEWHERE = os.environ.get("KVSCOPE_CAPTURES", "")
FRONT_S = 0.010
"""What a request spends before the engine counts it and after: a client's clock starts earlier than the engine's."""
BUCKETS_S = {
    "ttft": (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0),
    "tpot": (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5),
}
WAITED_BEFORE_THE_ENGINE = {
    "two-api-servers": "the second front end hands requests over late",
    "17_restart_counter_reset": "the client waited for a server that was starting",
    "18_data_parallel_2_engines": "two engine cores starve the front end on two shared processors",
    "19_api_servers_2_multiprocess_page": "the second front end hands requests over late",
}
"""Captures whose clients waited where no page looks: the page's time to the first token is right, and shorter."""


@dataclass(frozen=True)
class Truth:
    """What playbooks may say of a capture: ``must`` be found, ``may`` beside it, ``notice`` is told as no fault."""

    must: str = ""
    may: tuple[str, ...] = ()
    notice: str = ""


PREFIX = ("prefix_working_set_exceeds_pool", "prefix_pool_too_small", "multi_turn_eviction", "prefix_never_repeats")
TRUTH = {
    "admission-limited": Truth("admission_limited"),
    "two-api-servers": Truth(),
    "01_idle": Truth(),
    "02_healthy_steady": Truth(),
    "04a_client_bound_think": Truth("outside_engine_client_or_frontend", ("client_bound", "underused")),
    "05_mixed_longtail": Truth("prefill_decode_interference"),
    "06a_prefill_dominated": Truth("prefill_compute_bound", ("prefill_decode_interference",)),
    "07_kv_too_small_preempt": Truth("kv_capacity_preemption", ("kv_capacity", "kv_pool_too_small")),
    "08_admission_limited": Truth("admission_limited"),
    "09_prefix_friendly": Truth(),
    "11_prefix_thrash_pool_small": Truth("", PREFIX),
    "11b_prefix_thrash_pool_large": Truth(),
    "13_external_kv_connector": Truth(notice="tier_serves_prefixes"),
    "17_restart_counter_reset": Truth(),
    "18_data_parallel_2_engines": Truth(),
    "19_api_servers_2_multiprocess_page": Truth(),
    "20b_kv_events_thrash": Truth("", PREFIX),
}


def truth_of(folder: Path) -> Truth:
    return TRUTH.get(folder.name, Truth())


def captures() -> list[Path]:
    roots = [SHIPPED, *([Path(ELSEWHERE)] if ELSEWHERE else [])]
    return [path.parent for root in roots for path in sorted(root.glob("*/client.jsonl.gz"))]


@cache
def read(folder: Path) -> tuple[Store, Diagnosis]:
    store = Store()
    with closing(open_target(str(folder / "pages.jsonl.gz"))) as source:
        poll = source.poll()
        store.add(poll.samples)
        for mark in poll.marks:
            store.mark(mark)
        return store, diagnose(store, load_all(), source.describe())


def told(folder: Path, name: str) -> float:
    """A signal over the whole capture, restarts included."""
    store, _ = read(folder)
    assert store.span is not None
    reading = signals.compute(name, store, Segment("whole", store.span[0], store.span[1] + 1e-6))
    assert isinstance(reading, Reading), reading
    return reading.value


def requests(folder: Path) -> list[dict[str, float]]:
    with gzip.open(folder / "client.jsonl.gz", "rt") as file:
        return [row for row in map(json.loads, file) if not row.get("err")]


def mean(rows: list[dict[str, float]], key: str) -> float:
    values = [row[key] for row in rows if row.get(key) is not None]
    return sum(values) / len(values)


def bucket_width(kind: str, value: float) -> float:
    bounds = (0.0, *BUCKETS_S[kind], float("inf"))
    return next(high - low for low, high in pairwise(bounds) if value <= high)


def loaded(folder: Path) -> bool:
    """Whether a client of the kind these tests know had answers: others count other things under other names."""
    rows = requests(folder)
    return bool(rows) and "output_tokens" in rows[0]


def speaks_of(folder: Path, *names: str) -> bool:
    """Whether the engine's own page has one of these histograms, read as text."""
    with gzip.open(folder / "pages.jsonl.gz", "rt") as file:
        return any(f"{name}_bucket" in line for line in file for name in names)


FOLDERS = captures()
BUSY = [folder for folder in FOLDERS if loaded(folder)]
TOLD = {
    "ttft": [one for one in BUSY if speaks_of(one, "time_to_first_token_seconds")],
    "tpot": [one for one in BUSY if speaks_of(one, "time_per_output_token_seconds")],
}
"""Of what a client timed, what the engine timed too: some engines count requests and tokens only."""


@pytest.mark.skipif(
    not ELSEWHERE, reason="KVSCOPE_CAPTURES names no folder of captures: only the shipped ones are read"
)
def test_the_folder_of_captures_is_read() -> None:
    assert len(FOLDERS) > 2


@pytest.mark.parametrize("folder", TOLD["tpot"], ids=lambda folder: folder.name)
def test_time_per_token_agrees_with_the_client_within_four_percent(folder: Path) -> None:
    assert told(folder, "tpot_mean_s") == pytest.approx(mean(requests(folder), "tpot"), rel=0.04)


@pytest.mark.parametrize("folder", TOLD["ttft"], ids=lambda folder: folder.name)
def test_time_to_the_first_token_agrees_with_the_client_within_the_bucket(folder: Path) -> None:
    rows = requests(folder)
    seen = mean(rows, "ttft")
    value = told(folder, "ttft_mean_s")
    if folder.name in WAITED_BEFORE_THE_ENGINE:
        assert value < seen
        return
    assert abs(value - seen) <= bucket_width("ttft", value) + FRONT_S


@pytest.mark.parametrize(
    ("kind", "folder"), [(kind, one) for kind in TOLD for one in TOLD[kind]], ids=lambda one: getattr(one, "name", one)
)
@pytest.mark.parametrize("q", [0.5, 0.95])
def test_quantiles_agree_with_the_client_within_the_bucket(folder: Path, kind: str, q: float) -> None:
    values = sorted(row[kind] for row in requests(folder) if row.get(kind) is not None)
    seen = values[min(len(values) - 1, int(q * len(values)))]
    value = told(folder, f"{kind}_p{round(q * 100)}_s")
    if kind == "ttft" and folder.name in WAITED_BEFORE_THE_ENGINE:
        assert value - bucket_width(kind, value) <= seen
        return
    assert abs(value - seen) <= bucket_width(kind, value) + FRONT_S


@pytest.mark.parametrize("folder", BUSY, ids=lambda folder: folder.name)
def test_generated_tokens_are_those_the_client_got(folder: Path) -> None:
    store, _ = read(folder)
    assert store.span is not None
    tokens = told(folder, "generation_tokens_per_s") * (store.span[1] - store.span[0])
    got = sum(row["output_tokens"] for row in requests(folder))
    # Requests that the end of the load cut off had tokens too; a restart loses what came since the last scrape.
    assert 0.995 * got <= tokens <= 1.08 * got


@pytest.mark.parametrize("folder", [one for one in FOLDERS if one.name in TRUTH], ids=lambda folder: folder.name)
def test_the_diagnosis_says_nothing_that_is_not_true(folder: Path) -> None:
    _, found = read(folder)
    truth = truth_of(folder)
    said = {one.slug for one in found.findings if one.verdict in ("likely", "possible")}
    assert said <= {truth.must, *truth.may} - {""}


@pytest.mark.parametrize("folder", [one for one in FOLDERS if truth_of(one).must], ids=lambda folder: folder.name)
def test_the_diagnosis_finds_what_is_true(folder: Path) -> None:
    _, found = read(folder)
    assert truth_of(folder).must in {one.slug for one in found.findings if one.verdict in ("likely", "possible")}


@pytest.mark.parametrize("folder", [one for one in FOLDERS if truth_of(one).notice], ids=lambda folder: folder.name)
def test_what_is_worth_knowing_and_no_fault_is_told_in_a_line(folder: Path) -> None:
    _, found = read(folder)
    title = next(book.title for book in load_all() if book.cause.slug == truth_of(folder).notice)
    assert [line.partition(":")[0] for line in found.notices] == [title]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_what_cannot_be_known_names_what_would_supply_it(folder: Path) -> None:
    _, found = read(folder)
    assert found.unknown
    assert all(one.reason and one.remedy for one in found.unknown)


def test_a_restart_is_survived_without_a_negative_rate() -> None:
    folder = next((one for one in FOLDERS if one.name == "17_restart_counter_reset"), None)
    if folder is None:
        pytest.skip("KVSCOPE_CAPTURES names no folder with 17_restart_counter_reset")
    store, _ = read(folder)
    assert [segment.name for segment in store.segments] == ["start", "restart-1"]
    for segment in store.segments:
        for name in signals.names():
            reading = signals.compute(name, store, segment)
            if isinstance(reading, Reading) and name.endswith("_per_s"):
                assert reading.value >= 0, name
