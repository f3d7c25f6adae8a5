"""Before and after without tags: what nobody says costs certainty, what was measured of the load is a rival."""

from __future__ import annotations

import pytest

from kvscope.cli import run
from kvscope.compare import comparable, measured_load
from kvscope.judge import Pair
from kvscope.playbook_schema import Compare
from kvscope.sources.source import Mark
from kvscope.store import Store
from probes.sample import Sample


def pair_of(before: dict[str, float], now: dict[str, float]) -> Pair:
    """Two segments of twenty seconds: counters grow by their figure a second, observations and gauges have it."""
    store = Store()
    for start, figures in ((0.0, before), (100.0, now)):
        store.mark(Mark("before" if not start else "now", start))
        for second in range(21):
            for metric, value in figures.items():
                grows = metric == "requests.finished"
                store.add([Sample(metric, value * second if grows else value, start + second)])
    return Pair(store, store.segment("now"), store.segment("before"))


LOAD = {
    "sched.running": 8.0,
    "sched.waiting": 2.0,
    "requests.finished": 1.0,
    "request.tokens_in": 900.0,
    "request.tokens_out": 64.0,
}


def test_the_same_requests_stand_for_the_tags_nobody_gave():
    fit = comparable(pair_of(LOAD, LOAD), Compare(same=("workload", "offered_load", "device")), {}, "series")
    assert fit.doubts == ("device",)
    assert fit.rivals == ()
    assert "device" in fit.notice


def test_longer_prompts_are_a_rival_with_their_number():
    (rival,) = measured_load("workload", pair_of(LOAD, LOAD | {"request.tokens_in": 1800.0})) or ()
    assert rival.state == "open"
    assert "prompt_tokens_mean 900 → 1800" in rival.says


def test_a_slower_server_under_the_same_clients_is_no_other_load():
    assert measured_load("offered_load", pair_of(LOAD, LOAD | {"requests.finished": 0.5})) == ()
    assert measured_load("offered_load", pair_of(LOAD, LOAD | {"sched.running": 20.0})) == ()


def test_more_clients_and_more_requests_are_another_load():
    found = measured_load("offered_load", pair_of(LOAD, LOAD | {"sched.running": 20.0, "requests.finished": 2.0}))
    assert [rival.name for rival in found or ()] == ["another load", "another load"]


def test_a_load_nobody_measured_is_a_doubt():
    fit = comparable(pair_of({"sched.running": 1.0}, {"sched.running": 1.0}), Compare(same=("workload",)), {}, "log")
    assert fit.doubts == ("workload",)


def test_two_targets_without_one_figure_in_common_end_in_one_line(tmp_path, capsys):
    ollama, vllm = tmp_path / "ollama.log", tmp_path / "vllm.log"
    ollama.write_text("cache hit total=23169  matched=21742  cached=16383   left=6786\n" * 5)
    vllm.write_text("(EngineCore pid=1) INFO 09-12 10:00:00 [gpu_worker.py:1] Available KV cache memory: 102.3 GiB\n")
    assert run(["diagnose", str(vllm), "--baseline", str(ollama)]) == 4
    assert "nothing comparable" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--same", "--changed"])
def test_a_name_no_rule_asks_about_is_refused_with_the_nearest(option, tmp_path, capsys):
    log = tmp_path / "a.log"
    log.write_text("cache hit total=23169  matched=21742  cached=16383   left=6786\n" * 5)
    assert run(["diagnose", str(log), option, "devise"]) == 2
    assert "did you mean 'device'" in capsys.readouterr().err
