"""KV events: lost prefixes are told from new prompts, hashes only, gaps are said, a page beside adds its hits."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvscope.sources import open_target
from kvscope.sources.kv_events import EventsSource, LiveEvents, Residency, WithEvents, take
from kvscope.sources.source import Description, Poll
from probes.sample import Sample

EVENTS = Path(__file__).parents[3] / "samples" / "events"


def last(name: str) -> dict[str, float]:
    source = open_target(str(EVENTS / name))
    return {one.metric: one.value for one in source.poll().samples}


def test_new_prompts_lose_nothing_and_conversations_in_turns_lose_most():
    unique, thrash = last("unique-prompts.jsonl.gz"), last("prefix-thrash.jsonl.gz")
    assert unique["prefix.lost"] == 0
    assert thrash["prefix.lost"] > 0.5 * thrash["prefix.stored"]
    assert thrash["prefix.working_set_tokens"] > 160 * 128


def test_how_large_a_cache_would_do_is_said():
    notices = open_target(str(EVENTS / "prefix-thrash.jsonl.gz")).poll().notices
    assert any("80 % would have been found by a cache that keeps 40832 tokens" in one for one in notices)


def test_a_block_that_comes_again_counts_as_lost_only_after_it_was_evicted():
    residency = Residency()
    take(
        residency,
        [["BlockStored", [1, 2], None, [9, 9], 16, None, "GPU"], ["BlockStored", [1], None, [], 16, None, "GPU"]],
    )
    assert residency.lost == 0
    take(residency, [["BlockRemoved", [1], "GPU"], ["BlockStored", [1], None, [], 16, None, "GPU"]])
    assert (residency.stored, residency.lost, residency.evicted) == (48, 16, 16)
    take(
        residency, [{"type": "BlockStored", "block_hashes": [1], "block_size": 16, "medium": "CPU"}, "nonsense", 7, []]
    )
    held = {one.labels: one.value for one in residency.samples(1.0, alone=True) if one.metric == "prefix.cached_tokens"}
    assert held == {(("tier", "device"),): 32.0, (("tier", "host"),): 16.0}


def test_tensorrt_llm_s_events_are_read_too():
    residency = Residency()
    take(
        residency,
        [
            {"type": "stored", "blocks": [{"block_hash": 5, "tokens": [{}] * 32}]},
            {"type": "removed", "block_hashes": [5]},
        ],
    )
    assert (residency.stored, residency.evicted) == (32, 32)


def test_missing_sequence_numbers_are_counted():
    residency = Residency()
    for seq in (1, 2, 5, None, 6):
        residency.number(seq)
    assert residency.gaps == 2


def test_beside_a_page_what_had_been_computed_is_hits_and_what_was_lost():
    class Page:
        def describe(self) -> Description:
            return Description("series", "p", "vllm")

        def poll(self) -> Poll:
            return Poll(
                [Sample("prefix.hits", 100.0, 1795961300.0), Sample("prefix.queries", 900.0, 1795961300.0)], ended=True
            )

        def close(self) -> None:
            """Nothing is open."""

    both = WithEvents(Page(), EventsSource(EVENTS / "prefix-thrash.jsonl.gz", alone=False))
    found = {one.metric: one.value for one in both.poll().samples}
    assert found["prefix.reusable"] == 100.0 + found["prefix.lost"]
    assert found["prefix.queries"] == 900.0


def test_raw_payloads_are_read_where_the_package_is_there():
    pytest.importorskip("msgpack")
    assert last("first-20.msgpack")["prefix.stored"] > 0


def test_events_of_a_running_engine_are_heard(tmp_path):
    msgpack, zmq = pytest.importorskip("msgpack"), pytest.importorskip("zmq")
    context = zmq.Context()
    publisher = context.socket(zmq.XPUB)
    publisher.setsockopt(zmq.LINGER, 0)
    address = f"ipc://{tmp_path}/kv"
    publisher.bind(address)
    source = LiveEvents(f"events+{address}?topic=kv")
    assert publisher.recv() == b"\x01kv"
    batch = [1_790_000_000.0, [["BlockStored", [1], None, [1] * 16, 16, None, "GPU"]]]
    publisher.send_multipart([b"kv", (3).to_bytes(8, "big"), msgpack.packb(batch)])
    found: list[Sample] = []
    poller = zmq.Poller()
    poller.register(source._socket, zmq.POLLIN)
    assert poller.poll(5000)
    found = source.poll().samples
    assert {one.metric: one.value for one in found}["prefix.stored"] == 16.0
    source.close()
    publisher.close()
    context.term()
