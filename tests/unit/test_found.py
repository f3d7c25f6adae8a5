"""Model and device are found where somebody named them; a person's word counts first."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from kvscope.account import account
from kvscope.account.found import facts_of
from kvscope.recording import Recorder
from kvscope.sources import open_target
from kvscope.sources.source import Description
from kvscope.store import Segment, Store
from probes.sample import Labels, Sample

CONFIG = Path(__file__).parents[2] / "samples" / "configs" / "qwen3-8b.json"
PAGE = Description("vllm", "host:8000")


def told(*samples: Sample) -> Store:
    store = Store()
    store.add(samples)
    return store


def gpu(metric: str, value: float, t: float = 1.0, labels: Labels = (("gpu", "0"),)) -> Sample:
    return Sample(metric, value, t, labels)


def test_a_recording_keeps_the_model_and_the_device_it_was_told(tmp_path: Path) -> None:
    about = Description("vllm", "host:8000", tags={"device": "H200"}, config=json.dumps(json.loads(CONFIG.read_text())))
    path = tmp_path / "run.db"
    with closing(Recorder(path, about)) as recorder:
        recorder.add([gpu("sched.running", 1.0)])
    with closing(open_target(str(path))) as source:
        facts = facts_of(str(path), source.describe(), Store())
    assert facts.model is not None
    assert facts.model.weights is not None
    assert facts.device is not None
    assert facts.device.name == "H200"
    assert "config.json kept in the recording" in facts.sources


def test_a_config_in_a_recording_that_is_none_is_no_model() -> None:
    for text in ("[1]", "{", '{"model_type": "no-such"}', "[" * 100_000):
        assert facts_of("run.db", Description("recording", "run.db", config=text), Store()).model is None


def test_the_card_that_an_exporter_beside_the_engine_names_is_the_device() -> None:
    page = Path(__file__).parents[2] / "samples" / "scrapes" / "dcgm-4.8.2.prom"
    from kvscope.sources._page import PageReader
    from kvscope.sources.maps import load

    store = told(*PageReader(load("dcgm")).read(page.read_text(), 1.0).samples)
    facts = facts_of("host:8000", PAGE, store)
    assert facts.device is not None
    assert facts.device.name == "H100"


@pytest.mark.parametrize(("clock", "share"), [(3201.0, 1.0), (1600.5, 0.5)])
def test_bandwidth_goes_with_the_highest_memory_clock_that_was_seen(clock: float, share: float) -> None:
    store = told(gpu("gpu.mem_clock_max", 3201.0), gpu("gpu.mem_clock", clock), gpu("gpu.mem_clock", 400.0, 2.0))
    about = Description("vllm", "host:8000", tags={"device": "H200"})
    facts = facts_of("host:8000", about, store)
    assert facts.device is not None
    assert facts.device.bandwidth == pytest.approx(share * 4.8e12)


STEP_S, READ = 0.010, 24e9


def steps(read: float) -> Store:
    """A second of a hundred decode steps of 4 requests, each step reading ``read`` bytes as the engine works it out."""
    store = Store()
    for t in range(20):
        counted = {
            "batch.steps": 100,
            "tokens.generated": 400,
            "latency.itl.count": 400,
            "batch.read_bytes": 100 * read,
        }
        counted |= {"latency.itl.sum": 400 * STEP_S, "batch.tokens_per_step.sum": 400, "latency.ttft.count": 0}
        store.add([Sample(name, value * t, 1000.0 + t, ()) for name, value in counted.items()])
        store.add([Sample("sched.running", 4.0, 1000.0 + t, ())])
        store.add([Sample("request.tokens_in", 1000.0, 1000.0 + t, ())])
    return store


def test_bytes_that_the_engine_counts_are_the_bound_where_the_model_is_not_known() -> None:
    facts = facts_of("host:8000", PAGE, Store(), gpu="H200")
    found = account(steps(READ), Segment("all", 1000.0, 1020.0), facts)
    assert found.bound is not None
    assert found.bound.unsplit_s == pytest.approx(READ / 4.8e12)
    shares = found.levels["token"]
    assert shares is not None
    assert shares["unknown"] == pytest.approx(0.5), "whose they are nobody tells"
    assert shares["below_bound"] == pytest.approx(0.5)
    assert sum(shares.values()) == pytest.approx(1.0)
    assert "bytes of a step as the engine counts them" in found.sources


def test_bytes_that_the_engine_counts_win_over_the_configs_weights() -> None:
    facts = facts_of("host:8000", PAGE, Store(), str(CONFIG), "H200")
    ours = account(steps(0.0), Segment("all", 1000.0, 1020.0), facts)
    theirs = account(steps(READ), Segment("all", 1000.0, 1020.0), facts)
    assert ours.bound is not None
    assert theirs.bound is not None
    assert ours.bound.weights_s == pytest.approx(16.4e9 / 4.8e12, rel=0.1)
    assert theirs.bound.most_s == pytest.approx(READ / 4.8e12)
    assert theirs.bound.kv_s == ours.bound.kv_s
