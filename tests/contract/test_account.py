"""What limits a captured engine is what was limited by construction: in the whole capture, and in windows of 20 s.

Two captures are shipped; a folder of more, with its ``truth.yaml``, is checked where ``KVSCOPE_CAPTURES`` names one.
"""

from __future__ import annotations

import gzip
import json
import os
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median

import pytest
import yaml

from kvscope.account import NO_FACTS, Account, Change, Facts, account, change
from kvscope.devices import find
from kvscope.plan import geometry
from kvscope.sources import open_target
from kvscope.store import Segment, Store

SHIPPED = Path(__file__).parents[2] / "samples" / "captures"
ELSEWHERE = os.environ.get("KVSCOPE_CAPTURES", "")
TRUTH: dict[str, dict[str, list[str]]] = {
    "admission-limited": {"l1": ["cap"]},
    "two-api-servers": {"l1": ["demand"]},
}
QUEUED = ("cpu_llamacpp_kvtype_f16", "cpu_llamacpp_kvtype_q8")
"""Said to be limited by demand, but two of six clients wait for a slot all the time, as the page shows."""
UNTOLD = ("cpu_llamacpp_pool_small_unified",)
"""Requests fail for want of KV, and nobody waits: the page alone does not tell, its recording with the slots does."""
WINDOW_S, STEP_S = 20.0, 5.0


def truth() -> dict[str, dict[str, list[str]]]:
    file = Path(ELSEWHERE) / "truth.yaml" if ELSEWHERE else None
    more = yaml.safe_load(file.read_text())["captures"] if file and file.exists() else {}
    return {name: said for name, said in {**TRUTH, **more}.items() if folder(name).exists()}


def folder(name: str) -> Path:
    return (SHIPPED if name in TRUTH else Path(ELSEWHERE)) / name


@cache
def read(name: str) -> Store:
    store = Store()
    with closing(open_target(str(folder(name) / "pages.jsonl.gz"))) as source:
        store.add(source.poll().samples)
    return store


def whole(name: str) -> Account:
    start, end = read(name).span or (0.0, 0.0)
    return account(read(name), Segment("whole", start, end + 1e-6))


def recorded(name: str) -> Account:
    store = Store()
    with closing(open_target(str(folder(name) / "record.db"))) as source:
        store.add(source.poll().samples)
    return account(store, store.segments[-1])


def spans(name: str) -> list[tuple[float, float]]:
    """When each request of the client began and ended."""
    file = folder(name) / "client.jsonl.gz"
    if not file.exists():
        return []
    with gzip.open(file, "rt") as lines:
        rows = [json.loads(line) for line in lines]
    begun = [(row.get("t_submit", row.get("t")), row.get("e2e") or 0.0) for row in rows]
    return [(at, at + took) for at, took in begun if at is not None]


def loaded_windows(name: str) -> list[Segment]:
    """Windows in which the client had a request under way at every moment."""
    start, end = read(name).span or (0.0, 0.0)
    asked, found, at = spans(name), [], start
    while at + WINDOW_S <= end:
        moments = [at + WINDOW_S * i / 80 for i in range(81)]
        if all(any(begun <= t <= ended for begun, ended in asked) for t in moments):
            found.append(Segment("window", at, at + WINDOW_S))
        at += STEP_S
    return found


NAMES = sorted(truth())


@pytest.mark.parametrize("name", NAMES)
def test_the_limit_of_a_capture_is_the_one_it_was_made_with(name: str) -> None:
    if name in UNTOLD:
        assert recorded(name).limit.name in truth()[name]["l1"]
        return
    expected = ["cap"] if name in QUEUED else truth()[name]["l1"]
    assert whole(name).limit.name in expected


@pytest.mark.parametrize("name", NAMES)
def test_shares_add_up_and_what_is_lacking_names_its_remedy(name: str) -> None:
    found = whole(name)
    for level, shares in found.levels.items():
        if shares is not None:
            assert sum(shares.values()) == pytest.approx(1.0, abs=0.001), level
            assert all(share >= 0 for share in shares.values())
    assert all(one.reason and one.remedy for one in found.missing)


def test_in_nine_of_ten_loaded_windows_the_limit_is_the_same() -> None:
    right = total = 0
    for name in NAMES:
        if name in QUEUED + UNTOLD:
            continue
        for window in loaded_windows(name):
            total += 1
            right += account(read(name), window).limit.name in truth()[name]["l1"]
    assert total
    assert right >= 0.9 * total


@pytest.mark.parametrize("name", [name for name in NAMES if "engine" in truth()[name]])
def test_the_engine_spends_its_time_on_what_it_was_given_to_do(name: str) -> None:
    shares = whole(name).levels["engine"]
    assert shares is not None
    assert max(("prefill", "decode"), key=lambda part: shares[part]) in truth()[name]["engine"]


@pytest.mark.parametrize("name", [name for name in NAMES if "prefill_between" in truth()[name].get("l3", ())])
def test_prompts_between_tokens_are_seen_in_the_gaps(name: str) -> None:
    assert whole(name).token_limit == "prefill_between"


def test_little_of_the_first_two_levels_is_left_unknown() -> None:
    for level in ("admission", "requests", "engine"):
        unknown = [shares["unknown"] for name in NAMES if (shares := whole(name).levels[level]) is not None]
        assert median(unknown) <= 0.05


CONFIG = Path(__file__).parents[2] / "samples" / "configs" / "qwen3-8b.json"
PHYSICS = Facts(model=geometry(CONFIG), device=find("H200"), sources=("config.json", "H200"))
PAIR = ("gpu_decode_bf16", "gpu_decode_fp8")
needs_the_pair = pytest.mark.skipif(
    not all((Path(ELSEWHERE) / name).exists() for name in PAIR) or not ELSEWHERE,
    reason="KVSCOPE_CAPTURES names no folder with the two decode captures",
)


def judged(facts: Facts) -> Change:
    """The pair as two segments of one store, each with what its page says of its KV type."""
    store, segments = Store(), []
    for name, dtype in zip(PAIR, ("auto", "fp8"), strict=True):
        with closing(open_target(str(folder(name) / "pages.jsonl.gz"))) as source:
            samples = source.poll().samples
        store.add(samples)
        segments.append(Segment(name, samples[0].t, samples[-1].t + 1e-6, {"dtype": dtype}))
    found = change(store, segments[0], segments[1], facts)
    assert found is not None
    return found


@needs_the_pair
@pytest.mark.parametrize("facts", [NO_FACTS, PHYSICS], ids=["pages alone", "config and GPU"])
def test_a_kv_form_that_costs_more_than_it_saves_is_named_so(facts: Facts) -> None:
    found = judged(facts)
    assert found.verdict == "form_costs"
    assert found.kv_bytes == pytest.approx(-0.5, abs=0.01)
    assert found.measured == pytest.approx(0.126, abs=0.003)
    assert found.token == pytest.approx(0.15, abs=0.01)
    assert found.factor is not None
    assert found.factor[0] > 2.2


@needs_the_pair
def test_physics_leaves_a_band_for_how_often_a_shared_prefix_is_read() -> None:
    least, most = judged(PHYSICS).expected
    assert least == pytest.approx(-0.03, abs=0.005)
    assert most == pytest.approx(-0.45, abs=0.01)


@needs_the_pair
def test_reading_kv_is_the_largest_part_of_a_token_though_the_prefix_is_shared() -> None:
    start, end = read(PAIR[0]).span or (0.0, 0.0)
    found = account(read(PAIR[0]), Segment("whole", start, end + 1e-6), PHYSICS)
    assert found.token_limit == "kv"
    assert found.bound is not None
    assert found.bound.weights_s == pytest.approx(3.2e-3, rel=0.03)
    assert found.bound.kv_s == (pytest.approx(1.6e-3, rel=0.05), pytest.approx(27.4e-3, rel=0.02))


@needs_the_pair
def test_traces_of_both_sides_say_that_the_attention_kernel_became_dearer() -> None:
    store, segments = Store(), []
    for name in PAIR:
        with closing(open_target(str(folder(name) / "trace.json.gz"))) as source:
            samples, about = source.poll().samples, source.describe()
        store.add(samples)
        segments.append(Segment(name, samples[0].t, samples[-1].t + 1e-6, about.tags))
    found = change(store, segments[0], segments[1])
    assert found is not None
    assert found.verdict == "form_costs"
    assert found.factor == (pytest.approx(2.38, abs=0.02), pytest.approx(2.38, abs=0.02))
    moved = {part: now - was for part, (was, now) in found.parts.items()}
    assert max(moved, key=lambda part: abs(moved[part])) == "kv"
    assert moved["kv"] == pytest.approx(4.4e-3, abs=0.2e-3)
    assert sum(abs(by) for part, by in moved.items() if part != "kv") < 0.1 * moved["kv"]


@needs_the_pair
def test_the_bound_counts_kv_in_the_type_that_the_source_names() -> None:
    start, end = read(PAIR[1]).span or (0.0, 0.0)
    facts = replace(PHYSICS, kv_dtype="fp8")
    found = account(read(PAIR[1]), Segment("whole", start, end + 1e-6), facts)
    assert found.bound is not None
    assert found.bound.kv_s[1] == pytest.approx(13.7e-3, rel=0.02)
    assert found.token_limit in ("kv", "below_bound")
