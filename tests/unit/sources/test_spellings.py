"""Other wrappings of the same page: names with underscores, Ray's, routers that spell as their engines do."""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path

import pytest
import yaml

from kvscope.sources import maps
from kvscope.sources._reader import reader_for

SCRAPES = Path(__file__).parents[3] / "samples" / "scrapes"
LEFT = yaml.safe_load((Path(maps.__file__).parent / "left.yaml").read_text(encoding="utf-8"))
NEWEST = {
    "vllm": "vllm-0.33.0.prom",
    "sglang": "sglang-0.5.23.prom",
    "tensorrt_llm": "tensorrt_llm-1.3.prom",
    "lmcache": "lmcache-0.5.6.prom",
    "lmcache_mp": "lmcache_mp-0.5.6.prom",
    "mooncake": "mooncake-master.prom",
    "dynamo": "dynamo-1.6.1.prom",
    "llamacpp": "llamacpp-00dc805.prom",
    "lmdeploy": "lmdeploy-1263d5c.prom",
    "tgi": "tgi-db931fc.prom",
}


def families(text: str) -> set[str]:
    typed = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    return typed or {
        re.sub(r"_(bucket|sum|count)$", "", name) for name in re.findall(r"^([A-Za-z_:][\w:]*)", text, re.MULTILINE)
    }


@pytest.mark.parametrize(("engine", "page"), NEWEST.items(), ids=NEWEST)
def test_every_family_of_the_newest_release_is_mapped_or_listed_as_left(engine, page):
    known = maps.load(engine)
    read = {entry.name for entry in known.MAP}
    patterns = [pattern for found in LEFT.get(known.ENGINE, {}).values() for pattern in found]
    still_open = []
    for name in sorted(families((SCRAPES / page).read_text())):
        ways = {name, f"{name}_total", f"{name}_sum", f"{name}_count", name.removesuffix("_total")}
        if not ways & read and not any(fnmatch.fnmatchcase(way, one) for way in ways for one in patterns):
            still_open.append(name)
    assert not still_open


@pytest.mark.parametrize("prefix", ["", "ray_"])
def test_a_relay_s_spelling_reads_as_the_engine_s_own(prefix):
    text = (SCRAPES / "vllm-0.32.0.prom").read_text()
    spelt = re.sub(r"\bvllm:", f"{prefix}vllm_", text)
    first, second = reader_for(text, "a"), reader_for(spelt, "b")
    samples = {(one.metric, one.labels): one.value for one in first.read(text, 1.0).samples}
    assert {(one.metric, one.labels): one.value for one in second.read(spelt, 1.0).samples} == samples
    assert second.engine.ENGINE == "vllm"


def test_a_router_that_spells_as_its_engines_is_no_engine():
    page = (
        'vllm:current_qps{server="http://a:8000"} 2\nvllm:num_requests_running{server="http://a:8000"} 7\n'
        'vllm:num_requests_running{server="http://b:8000"} 0\nvllm:healthy_pods_total{server="http://a:8000"} 1\n'
    )
    reader = reader_for(page, "router")
    assert (reader.engine.ENGINE, reader.engine.ROLE) == ("router", "router")
    found = {
        dict(one.labels)["worker"]: one.value
        for one in reader.read(page, 1.0).samples
        if one.metric == "router.running"
    }
    assert found == {"http://a:8000": 7.0, "http://b:8000": 0.0}
    assert not any(one.metric == "sched.running" for one in reader.read(page, 2.0).samples)
