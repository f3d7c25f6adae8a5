"""Every kind of log line that is claimed to be read stands in samples/logs, and gives what it says in the catalogue."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvscope.errors import SourceError
from kvscope.sources import open_target
from kvscope.sources.logs.source import every, load
from kvscope.store import Store
from probes.catalog import metric_of

SAMPLES = Path(__file__).parents[2] / "samples" / "logs"
FILES = sorted(SAMPLES.glob("**/*.log"))
RULES = [(engine.ENGINE, rule) for engine in every() for rule in engine.RULES]


def lines_of(name: str) -> list[str]:
    return [line for path in SAMPLES.glob(f"**/{name}*.log") for line in path.read_text(errors="replace").splitlines()]


@pytest.mark.parametrize(("engine", "rule"), RULES, ids=[f"{engine}: {rule.needle}" for engine, rule in RULES])
def test_every_rule_is_shown_by_a_line(engine, rule):
    from kvscope.sources.logs.prefix import plain

    name = next(module.__name__.rpartition(".")[2] for module in every() if engine == module.ENGINE)
    shown = [line for line in lines_of(name) if rule.needle in line and rule.regex.search(plain(line))]
    assert shown, f"no line in samples/logs for {rule.needle!r} of {rule.where}"


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(SAMPLES)) for path in FILES])
def test_a_log_is_known_by_its_lines_and_speaks_the_catalogue(path):
    source = open_target(str(path))
    about, read = source.describe(), source.poll()
    assert read.ended
    assert about.kind == "log"
    assert path.stem.partition("-")[0].replace("_", "").replace("llamacpp", "llama.cpp") == about.engine.replace(
        "-", ""
    )
    unknown = {sample.metric for sample in read.samples if metric_of(sample.metric) is None}
    assert not unknown
    assert [sample.t for sample in read.samples] == sorted(sample.t for sample in read.samples)


def test_rules_name_version_and_file():
    assert all(rule.where for _, rule in RULES)
    read_in = {engine.READ_IN.split()[0] for engine in every()}
    assert read_in >= {
        "vLLM",
        "SGLang",
        "llama.cpp",
        "Ollama",
        "LMCache",
        "TensorRT-LLM",
        "LMDeploy",
        "Mooncake",
        "Dynamo",
    }


def test_a_rate_in_a_log_becomes_the_tokens_it_stands_for(tmp_path):
    line = (
        "INFO 09-07 06:35:{:02d} [loggers.py:310] Engine 000: Avg prompt throughput: 0.0 tokens/s, "
        "Avg generation throughput: {:.1f} tokens/s, Running: 2 reqs, Waiting: 1 reqs, GPU KV cache usage: 50.0%, "
        "Prefix cache hit rate: 0.0%\n"
    )
    path = tmp_path / "server.log"
    path.write_text("".join(line.format(second, rate) for second, rate in ((0, 10.0), (10, 20.0), (20, 40.0))))
    store = Store()
    store.add(open_target(str(path)).poll().samples)
    times, values = store.series("tokens.generated")
    assert [round(value) for value in values] == [0, 100, 300, 700]
    assert times[-1] - times[0] == 30.0


def test_two_replicas_in_one_log_are_told_apart(tmp_path):
    line = (
        "{} | [2026-09-14 10:00:{:02d}] Decode batch, #running-req: {}, #token: 9, token usage: 0.35, #queue-req: {}\n"
    )
    path = tmp_path / "compose.log"
    path.write_text(
        "".join(line.format(who, second, n, n) for second in range(9) for who, n in (("a-1", 8), ("b-1", 0)))
    )
    source = open_target(str(path))
    samples = source.poll().samples
    found = {dict(one.labels).get("replica"): one.value for one in samples if one.metric == "sched.running"}
    assert found == {"a-1": 8.0, "b-1": 0.0}
    assert source.describe().tags["replicas"] == "2"


WRAPPED = {
    "docker's files": '{{"log":"{}\\n","stream":"stdout","time":"2026-09-14T10:00:00.5Z"}}',
    "a structured logger": '{{"message":"{}","level":"info","ts":1789380000.5}}',
    "kubectl with a prefix": "[pod/sgl-0/server] {}",
    "docker's time stamps": "2026-09-14T10:00:00.500000000Z {}",
    "the CRI's files": "2026-09-14T10:00:00.500000000Z stdout F {}",
    "journald": "Sep 14 10:00:00 gpu1 sglang[123]: {}",
    "compose": "sglang-1  | {}",
    "colours": "\x1b[32m{}\x1b[0m",
    "a quote": "> {}",
    "an indented block": "    {}",
}


@pytest.mark.parametrize("wrapped", WRAPPED.values(), ids=WRAPPED)
def test_a_wrapped_line_says_the_same(tmp_path, wrapped):
    line = "[2026-09-14 10:00:00] Decode batch, #running-req: 8, #token: 99, token usage: 0.35, #queue-req: 3"
    path = tmp_path / "server.log"
    path.write_text(f"{wrapped.format(line)}\n" * 4)
    samples = open_target(str(path)).poll().samples
    assert {one.value for one in samples if one.metric == "sched.waiting"} == {3.0}
    assert all(abs(one.t - 1789380000) <= 1 for one in samples)


def test_lines_that_were_run_together_are_each_read(tmp_path):
    line = (
        "INFO 07-28 06:40:{} [loggers.py:118] Engine 000: Avg prompt throughput: 0.0 tokens/s, "
        "Avg generation throughput: 9.0 tokens/s, Running: {} reqs, Waiting: 0 reqs, GPU KV cache usage: 9.0%, "
        "Prefix cache hit rate: 0.0%"
    )
    path = tmp_path / "server.log"
    path.write_text(f"{line.format(10, 1)}\n{line.format(20, 2)}{line.format(30, 3)}{line.format(40, 4)}\n")
    samples = [one for one in open_target(str(path)).poll().samples if one.metric == "sched.running"]
    assert [one.value for one in samples] == [1.0, 2.0, 3.0, 4.0]
    assert samples[-1].t - samples[0].t == 30


def test_a_result_pasted_with_its_servers_lines_is_one_target(tmp_path):
    path = tmp_path / "report.md"
    path.write_text(
        "```\nINFO 07-28 06:40:10 [loggers.py:118] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation "
        "throughput: 9.0 tokens/s, Running: 5 reqs, Waiting: 3 reqs, GPU KV cache usage: 99.0%, Prefix cache hit rate: "
        "0.0%\n```\nSuccessful requests: 5\n= Serving Benchmark Result =\nMean TTFT (ms): 40\n"
    )
    source = open_target(str(path))
    told = {one.metric: one.value for one in source.poll().samples}
    assert source.describe().engine == "vllm"
    assert (told["sched.waiting"], round(told["latency.ttft"], 3)) == (3.0, 0.04)


def test_a_log_of_nothing_but_its_start_says_what_it_told(tmp_path):
    path = tmp_path / "server.log"
    path.write_text("INFO 06-22 02:54:47 [kv_cache_utils.py:716] GPU KV cache size: 251,920 tokens\n")
    (notice,) = [one for one in open_target(str(path)).poll().notices if "only of the start" in one]
    assert "kv.capacity_tokens 252 k tok" in notice


def test_a_model_named_by_what_a_terminal_obeys_is_told_escaped(tmp_path):
    path = tmp_path / "server.log"
    text = (SAMPLES / "vllm-0.25.0-h200.log").read_text()
    start = next(line for line in text.splitlines() if "served_model_name=" in line)
    before, _, rest = start.partition("served_model_name=")
    hostile = f"{before}served_model_name=\x1b]0;x\x07\u202e,{rest.partition(',')[2]}"
    path.write_text(text.replace(start, hostile))
    source = open_target(str(path))
    named = {value for sample in source.poll().samples for name, value in sample.labels if name == "model"}
    assert named == {r"\u202e"}


def test_settings_of_a_large_log_are_looked_for_behind_every_start(tmp_path):
    from kvscope.sources.logs.reader import needles
    from kvscope.sources.logs.scan import Scanner

    vllm = load("vllm")
    scanner = Scanner(needles(vllm.RULES), most=100, starts=vllm.STARTS)
    setting, work = b"GPU KV cache size: 100 tokens\n", b"Avg generation throughput: 1 tokens/s\n"
    found = [len(list(scanner.feed(setting + work))) for _ in range(20)]
    assert found == [2] * 8 + [1] * 12
    assert len(list(scanner.feed(b"Initializing LLM engine (v0.9) with config:\n" + setting))) == 2


def test_a_log_without_a_line_that_tells_anything_is_refused_by_its_engine(tmp_path):
    path = tmp_path / "frontend.log"
    path.write_text("2026-06-05T10:00:09.000000Z  INFO dynamo_llm::http::service: ready\n")
    with pytest.raises(SourceError, match="dynamo wrote it, but no line tells"):
        open_target(str(path)).poll()


def test_a_store_of_one_tier_is_the_hosts(tmp_path):
    path = tmp_path / "master.log"
    path.write_text(
        "I0618 03:13:46.835480 6 rpc_service.h:123] Master Metrics: Storage: 512.00 MB / 1.00 GB (50.0%) | Keys: 8\n"
    )
    told = {one.metric: (one.value, dict(one.labels)) for one in open_target(str(path)).poll().samples}
    assert told["tier.usage_ratio"] == (0.5, {"tier": "host"})


def test_a_log_without_times_gives_shares_and_no_rate(tmp_path):
    path = tmp_path / "server.log"
    path.write_text("cache hit total=23169  matched=21742  cached=16383   left=6786\n" * 5)
    read = open_target(str(path)).poll()
    metrics = {sample.metric for sample in read.samples}
    assert {"prefix.hits", "prefix.matched"} <= metrics
    assert "tokens.prompt" not in metrics
    assert any("no line carries a time" in notice for notice in read.notices)


def test_a_growing_log_is_followed_and_a_rotated_one_opened_anew(tmp_path):
    line = "[2026-09-14 10:00:{:02d}] Decode batch, #running-req: 8, #token: 9, token usage: 0.35, #queue-req: {}\n"
    path = tmp_path / "server.log"
    path.write_text(line.format(0, 1) * 2)
    source = open_target(str(path), follow=True)
    assert not source.poll().ended
    with path.open("a") as file:
        file.write(line.format(1, 2))
    assert [one.value for one in source.poll().samples if one.metric == "sched.waiting"] == [2.0]
    path.rename(tmp_path / "server.log.1")
    path.write_text(line.format(2, 5))
    source.poll()
    assert [one.value for one in source.poll().samples if one.metric == "sched.waiting"] == [5.0]
    source.close()


def test_the_engine_beside_is_read_too():
    assert [engine.ENGINE for engine in (load("lmcache"),)] == ["lmcache"]
    from kvscope.sources.logs.source import detect

    both = (SAMPLES / "kinds" / "vllm.log").read_bytes() + (SAMPLES / "kinds" / "lmcache.log").read_bytes()
    assert [engine.ENGINE for engine in detect(both)] == ["vllm", "lmcache"]


def test_prompts_that_match_a_slot_and_are_computed_whole_are_not_reused(tmp_path):
    def said(computed: int) -> dict[str, float]:
        line = "0.01.{:03d}.000 I slot {}: id  0 | task {} | {}\n"
        told = [line.format(0, "launch_slot_", 1, "processing task, is_child = 0")]
        told.append(line.format(1, "release", 1, "stop processing: n_tokens = 600, truncated = 0"))
        for k in range(2, 9):
            like = "selected slot by LCP similarity, f_sim_best = 0.960 (> 0.100 thold), f_keep = 0.800"
            took = f"prompt eval time =     500.00 ms /   {computed} tokens (    1.00 ms per token)"
            told += [line.format(10 * k, "get_availabl", -1, like), line.format(10 * k + 1, "print_timing", k, took)]
            told.append(line.format(10 * k + 2, "release", k, "stop processing: n_tokens = 600, truncated = 0"))
        path = tmp_path / f"server-{computed}.log"
        path.write_text("".join(told))
        return {one.metric: one.value for one in open_target(str(path)).poll().samples}

    whole, part = said(500), said(20)
    assert (whole["config.prefix_caching"], whole["prefix.hits"]) == (0.0, 0.0)
    assert whole["prefix.matched"] == part["prefix.matched"] == pytest.approx(7 * 480)
    assert (part["config.prefix_caching"], part["prefix.hits"]) == (1.0, pytest.approx(7 * 480))
