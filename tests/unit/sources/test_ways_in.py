"""Folders, patterns, lists, pages in a row, tables, Prometheus answers, what is piped in: all end as one target."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from kvscope.errors import SourceError
from kvscope.signals import compute
from kvscope.signals.reading import Missing, Reading
from kvscope.sources import open_target
from kvscope.sources.saved import split_pages
from kvscope.store import Store
from probes.sample import Sample

SAMPLES = Path(__file__).parents[3] / "samples"


def page(tokens: int, running: int = 1, start: float = 1_700_000_000.0) -> str:
    return (
        "# HELP vllm:generation_tokens_total Tokens.\n# TYPE vllm:generation_tokens_total counter\n"
        f'vllm:generation_tokens_total{{engine="0",model_name="m"}} {tokens}\n'
        "# TYPE vllm:num_requests_running gauge\n"
        f'vllm:num_requests_running{{engine="0",model_name="m"}} {running}\n'
        f'vllm:prefix_cache_queries_total{{engine="0",model_name="m"}} {10 * tokens}\n'
        f'vllm:prefix_cache_hits_total{{engine="0",model_name="m"}} {4 * tokens}\n'
        f"process_start_time_seconds {start}\n"
    )


def read(target: str) -> tuple[Store, list[str]]:
    source = open_target(target)
    poll, store = source.poll(), Store()
    source.close()
    for mark in poll.marks:
        store.mark(mark)
    store.add(poll.samples)
    return store, list(poll.notices)


def reading(store: Store, name: str) -> Reading | Missing:
    return compute(name, store, store.segments[-1])


def test_one_page_tells_averages_since_the_engine_started(tmp_path):
    path = tmp_path / "page.prom.gz"
    path.write_bytes(gzip.compress(page(5000).encode()))
    store, notices = read(str(path))
    assert store.segments[-1].name == "since start"
    hits = reading(store, "prefix_hit_rate")
    assert isinstance(hits, Reading)
    assert hits.value == pytest.approx(0.4)
    assert isinstance(reading(store, "running_requests"), Missing)
    assert any("since the engine started" in line for line in notices)


def test_pages_one_after_another_are_cut_where_the_first_series_comes_again(tmp_path):
    pages = [page(1000), page(2000), page(3500)]
    assert split_pages("".join(pages)) == pages
    path = tmp_path / "three.prom"
    path.write_text("".join(pages))
    store, notices = read(str(path))
    assert list(store.series("tokens.generated")[1]) == [1000.0, 2000.0, 3500.0]
    assert any("say no time" in line for line in notices)


def test_a_folder_of_pages_is_one_engine_s_series_in_natural_order(tmp_path):
    for number, tokens in ((9, 1000), (10, 2000), (11, 3000)):
        (tmp_path / f"metrics-{number}.prom").write_text(page(tokens))
    store, _ = read(str(tmp_path))
    assert list(store.series("tokens.generated")[1]) == [1000.0, 2000.0, 3000.0]


def test_pages_of_different_engines_are_a_fleet(tmp_path):
    for name, running, start in (("a", 12, 1.0), ("b", 0, 2.0)):
        (tmp_path / f"pod-{name}.prom").write_text(page(100, running, 1_700_000_000.0 + start))
    for target in (f"{tmp_path}/pod-*.prom", f"{tmp_path}/pod-a.prom,{tmp_path}/pod-b.prom"):
        store, _ = read(target)
        assert {dict(labels)["replica"] for labels in store.keys("sched.running")} == {"pod-a", "pod-b"}


def test_a_folder_with_a_series_and_a_log_is_one_run(tmp_path):
    lines = [json.dumps({"t": 1_789_380_000.0 + second, "text": page(100 * second)}) for second in range(5)]
    (tmp_path / "pages.jsonl").write_text("\n".join(lines))
    (tmp_path / "server.log").write_bytes((SAMPLES / "logs" / "vllm-0.32.0-cpu.log").read_bytes())
    (tmp_path / "notes.txt").write_text("nothing that is read")
    store, _ = read(str(tmp_path))
    assert store.latest("config.max_context") == 4096.0
    assert len(store.series("tokens.generated")[1]) == 5


def test_a_log_that_says_no_times_lengthens_no_run(tmp_path):
    lines = [json.dumps({"t": 1_789_380_000.0 + second, "text": page(100 * second)}) for second in range(5)]
    (tmp_path / "pages.jsonl").write_text("\n".join(lines))
    (tmp_path / "start.log").write_text("non-default args: {'model': 'm', 'max_model_len': 4096}\n")
    store, _ = read(str(tmp_path))
    assert store.latest("config.max_context") == 4096.0
    assert store.segments[-1].end_s - store.segments[0].start_s < 60.0


def test_a_page_of_a_machine_s_exporter_stands_beside_an_engine_s(tmp_path):
    (tmp_path / "engine.prom").write_text(page(100))
    for name, util in (("rocm-1.5.2", 0.96), ("npu-7", 0.88)):
        text = (SAMPLES / "scrapes" / f"{name}.prom").read_text().replace("gpu_gfx_activity", "amd_gpu_gfx_activity")
        (tmp_path / "device.prom").write_text(text)
        store, _ = read(str(tmp_path))
        assert store.latest("gpu.util", (("gpu", "1"),)) == pytest.approx(util)
        assert store.latest("tokens.generated") == 100.0
    (tmp_path / "engine.prom").unlink()
    with pytest.raises(SourceError, match="readings of a machine"):
        read(str(tmp_path))


def test_what_says_no_time_is_laid_over_the_stretch_of_the_log_beside_it(tmp_path):
    (tmp_path / "server.log").write_bytes((SAMPLES / "logs" / "vllm-0.32.0-cpu.log").read_bytes())
    row = "m:latest   0123456789ab    {} GB    100% GPU     262144     4 minutes from now\n"
    prints = "".join(f"NAME   ID   SIZE   PROCESSOR   CONTEXT   UNTIL\n{row.format(size)}" for size in (24, 28, 75))
    (tmp_path / "ps.txt").write_text(prints)
    alone, _ = read(str(tmp_path / "server.log"))
    both, notices = read(str(tmp_path))
    times, sizes = both.series("gpu.mem_used", (("gpu", "0"),))
    assert list(sizes) == [24e9, 28e9, 75e9]
    assert (times[0], times[-1]) == (alone.segments[0].start_s, pytest.approx(alone.newest("engine.info")))
    assert both.series("sched.running") == alone.series("sched.running")
    assert any("no print says when" in one for one in notices)


def test_a_router_is_no_engine_and_shows_whom_it_leaves_idle(tmp_path):
    for name in ("production-stack", "aibrix", "llm-d", "sglang"):
        pages = (SAMPLES / "scrapes" / f"router-{name}.prom").read_text() * 5
        (tmp_path / "pages.prom").write_text(pages)
        source = open_target(str(tmp_path / "pages.prom"))
        assert source.describe().engine == "router"
        store = Store()
        store.add(source.poll().samples)
        assert not store.keys("sched.running")
        idle = reading(store, "idle_replicas_beside_queues")
        assert isinstance(idle, Missing) if name == "sglang" else isinstance(idle, Reading) and idle.value == 1.0


def test_a_prometheus_answer_is_read_as_its_prometheus_is(tmp_path):
    values = [[1_790_000_000 + 15 * step, str(100 * step)] for step in range(10)]
    metric = {"__name__": "vllm:generation_tokens_total", "instance": "a:8000", "model_name": "m"}
    path = tmp_path / "range.json"
    path.write_text(
        json.dumps(
            {"status": "success", "data": {"resultType": "matrix", "result": [{"metric": metric, "values": values}]}}
        )
    )
    store, _ = read(str(path))
    speed = reading(store, "generation_tokens_per_s")
    assert isinstance(speed, Reading)
    assert speed.value == pytest.approx(100 / 15)
    path.write_text(json.dumps({"status": "success", "data": {"resultType": "vector", "result": []}}))
    with pytest.raises(SourceError, match="expected a matrix"):
        open_target(str(path))


def test_a_table_is_read_long_or_wide_and_from_nvidia_smi(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(
        "t,metric,value,unit,labels\n1790000000,sched.running,4,requests,\n1790000001,sched.running,6,requests,\n"
    )
    assert list(read(str(path))[0].series("sched.running")[1]) == [4.0, 6.0]
    path.write_text("Time,vllm:num_requests_waiting,kv usage\n2026-09-14T10:00:00Z,3,0.5\n2026-09-14T10:00:15Z,4,0.6\n")
    store, _ = read(str(path))
    assert list(store.series("sched.waiting")[1]) == [3.0, 4.0]
    path.write_text("timestamp, utilization.gpu [%], memory.used [MiB]\n2026/09/14 10:00:00.000, 97 %, 1024 MiB\n")
    assert list(read(str(path))[0].series("gpu.util", (("gpu", "0"),))[1]) == [0.97]
    path.write_text("timestamp, index, utilization.gpu [%]\n2026/09/14 10:00:00.000, \x1b[31m, 97 %\n")
    assert all(text.isprintable() for labels in read(str(path))[0].keys("gpu.util") for _, text in labels)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# a title\n\nwords\n", "text of no kind that is known ('# a title'…); expected a metrics page"),
        ("<html></html>", "a web page; expected"),
        ("", "empty; expected"),
        ("\x00\x01", "binary data; expected"),
    ],
)
def test_a_refusal_says_what_it_looked_like_and_what_is_read(tmp_path, text, said):
    path = tmp_path / "x"
    path.write_text(text)
    with pytest.raises(SourceError) as error:
        open_target(str(path))
    assert said in str(error.value)


@pytest.mark.parametrize("name", ["logs/vllm-0.32.0-cpu.log", "scrapes/vllm-0.32.0.prom", "figures/fp8-decode.yaml"])
def test_what_is_piped_in_is_known_by_what_it_is(name):
    done = subprocess.run(
        [sys.executable, "-m", "kvscope", "diagnose", "-", "--format", "json"],
        input=(SAMPLES / name).read_bytes(),
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr.decode()[-500:]
    assert json.load(io.BytesIO(done.stdout))["source"]["engine"] == "vllm"


def test_ollama_s_answers_and_its_table_are_read(tmp_path):
    answers = tmp_path / "chat.jsonl"
    line = {
        "model": "m",
        "done": True,
        "prompt_eval_count": 1000,
        "prompt_eval_duration": 10**9,
        "eval_count": 100,
        "eval_duration": 2 * 10**9,
    }
    answers.write_text("\n".join(json.dumps(line) for _ in range(6)))
    store, notices = read(str(answers))
    tpot = reading(store, "tpot_mean_s")
    assert isinstance(tpot, Reading)
    assert tpot.value == pytest.approx(0.02)
    assert any("no answer says when" in one for one in notices)
    table = tmp_path / "ps.txt"
    row = "m:latest   0123456789ab    {} GB    100% GPU     262144     4 minutes from now\n"
    table.write_text(
        "".join(f"NAME   ID   SIZE   PROCESSOR   CONTEXT   UNTIL\n{row.format(size)}" for size in (24, 28, 75))
    )
    store, _ = read(str(table))
    assert list(store.series("gpu.mem_used", (("gpu", "0"),))[1]) == [24e9, 28e9, 75e9]


def test_samples_written_as_a_table_come_back(tmp_path):
    from kvscope.sources.table import rows_of

    given = [Sample("tier.usage_ratio", 0.5, 1_790_000_000.0, (("tier", "host"),))]
    path = tmp_path / "out.csv"
    head = "t,metric,value,unit,labels\n"
    path.write_text(
        head + "\n".join(",".join(f'"{cell.replace(chr(34), chr(34) * 2)}"' for cell in row) for row in rows_of(given))
    )
    assert read(str(path))[0].latest("tier.usage_ratio", (("tier", "host"),)) == 0.5
