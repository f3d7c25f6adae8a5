"""Figures that somebody stated: names and units, arms, benchmarks' results, gates on their comparison."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from kvscope.cli import run
from kvscope.errors import SourceError
from kvscope.sources import open_target
from kvscope.sources.stated import document, result
from kvscope.sources.stated.arms import arms, figures_of_arm
from kvscope.sources.stated.figure import number_of, unknown_notice

SAMPLES = Path(__file__).parents[3] / "samples"
RESULTS = sorted(path for path in (SAMPLES / "results").iterdir() if path.name != "README.md")


def written(tmp_path: Path, values: str, head: str = "engine: vllm") -> Path:
    path = tmp_path / "figures.yaml"
    path.write_text(f"figures: 1\n{head}\nvalues:\n{values}")
    return path


@pytest.mark.parametrize(
    ("stated", "metric", "value"),
    [
        ("{name: tpot, value: 28.9 ms}", "latency.tpot", 0.0289),
        ("{name: tpot, value: 28.9, unit: ms}", "latency.tpot", 0.0289),
        ("{name: kv usage, value: 93%}", "kv.usage_ratio", 0.93),
        ("{name: kv.reserved_bytes, value: 2 GiB}", "kv.reserved_bytes", float(2 << 30)),
        ("{name: throughput, value: 1.2 k tok/s}", "", 0.0),
        ("{name: throughput, value: '1,204 tok/s'}", "tokens.generated", 1204.0),
        ("{name: vllm:num_requests_waiting, value: 43}", "sched.waiting", 43.0),
        ("{name: 'vllm:kv_cache_usage_perc', value: 0.4}", "kv.usage_ratio", 0.4),
        ("{name: 'kv.pool_usage_ratio{pool=state}', value: 0.8}", "kv.pool_usage_ratio", 0.8),
    ],
)
def test_a_figure_is_known_by_any_of_its_names_and_units(tmp_path, stated, metric, value):
    if not metric:
        with pytest.raises(SourceError, match="not one figure"):
            document.read(written(tmp_path, f"  - {stated}\n"))
        return
    (found,) = document.read(written(tmp_path, f"  - {stated}\n")).figures
    assert (found.metric, found.value) == (metric, pytest.approx(value))


def test_an_unknown_name_is_listed_with_the_nearest(tmp_path):
    stated = document.read(written(tmp_path, "  - {name: tpott, value: 1}\n  - {name: ttft, value: 1 s}\n"))
    assert unknown_notice(stated) == ["not a name that is known: tpott (did you mean 'tpot'?)"]


def test_arms_are_taken_as_named_and_a_common_figure_belongs_to_both():
    stated = document.read(SAMPLES / "figures" / "fp8-decode.yaml")
    assert arms(stated.figures) == ("before", "after")
    found = {one.metric: one.value for one in figures_of_arm(stated, "after")}
    assert found["sched.running"] == 24.0
    assert found["config.kv_bits"] == 8.0
    assert stated.settings == {"sched.max_running": 64.0}


def test_stated_figures_are_judged_and_never_more_than_possible(capsys):
    assert run(["diagnose", str(SAMPLES / "figures" / "fp8-decode.yaml"), "--all", "--format", "json"]) in (0, 1)
    out = capsys.readouterr().out
    assert '"verdict": "likely"' not in out
    assert "its error is not known" in out


def test_yaml_with_aliases_or_nothing_in_it_is_refused_in_one_line(tmp_path):
    path = tmp_path / "bomb.yaml"
    path.write_text("figures: 1\na: &a [1]\nvalues: [*a, *a]\n")
    with pytest.raises(SourceError, match="aliases are not read"):
        document.read(path)
    with pytest.raises(SourceError, match="not one figure"):
        document.read(written(tmp_path, "  []\n"))


def test_a_form_is_written_filled_in_and_read_back(tmp_path, capsys):
    form = tmp_path / "form.yaml"
    assert run(["figures", "new", str(form)]) == 0
    assert run(["figures", "new", str(form)]) == 2
    assert run(["figures", "show", str(form)]) == 0
    assert "latency.tpot" in capsys.readouterr().out


@pytest.mark.parametrize(("text", "found"), [("~12.5 ms", (12.5, "ms")), (">0", (1.0, "")), ("1e3", (1000.0, ""))])
def test_a_number_is_read_with_its_unit(text, found):
    assert number_of(text) == found


@pytest.mark.parametrize("value", ["many", float("nan"), 10**400, [1], None, "1" * 99])
def test_what_is_no_number_is_none(value):
    assert number_of(value) is None


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.name)
def test_every_benchmark_s_result_is_known_by_what_is_in_it(path):
    with closing(open_target(str(path))) as source:
        assert source.describe().kind == "figures"
        assert source.poll().samples or path.name == "vllm-throughput.json"


@pytest.mark.parametrize("name", ["vllm-serve.json", "vllm-serve.txt", "sglang-serving.jsonl", "guidellm.json"])
def test_the_same_run_reads_the_same_from_every_tool(name):
    found = result.read(SAMPLES / "results" / name)
    numbers = {one.name: one for one in found.numbers}
    assert numbers["tpot_mean_s"].value == pytest.approx(0.0055)
    assert numbers["ttft_p99"].value == pytest.approx(0.12)
    assert numbers["generation_tokens_per_s"].value == 2560.0
    assert found.means["request.tokens_out"] == 256.0
    assert numbers["tpot_mean_s"].error == pytest.approx(2 * 0.3e-3 / 200**0.5, rel=0.2)


def test_llama_bench_reads_the_same_from_json_and_from_its_table():
    first, second = (result.read(SAMPLES / "results" / f"llama-bench.{kind}") for kind in ("json", "md"))
    assert [(one.name, one.value) for one in first.numbers] == [(one.name, one.value) for one in second.numbers]
    assert first.means["latency.tpot"] == pytest.approx(1 / 180)


@pytest.fixture
def slower(tmp_path):
    text = (SAMPLES / "results" / "vllm-serve.json").read_text()
    path = tmp_path / "after.json"
    path.write_text(
        text.replace('"median_tpot_ms": 5.4', '"median_tpot_ms": 6.4').replace(
            '"p99_tpot_ms": 6.2', '"p99_tpot_ms": 7.2'
        )
    )
    return path


@pytest.mark.parametrize(
    ("gate", "code", "word"),
    [
        ("tpot_p50 > +5%", 1, "FAIL"),
        ("tpot_p50 > +40%", 0, "PASS"),
        ("tpot_p99 > +5%", 4, "CANNOT TELL"),
        ("tpot_p5 > +5%", 2, "did you mean 'tpot_p50'"),
        ("tpot worse", 2, "expected NAME > +5%"),
    ],
)
def test_a_gate_passes_fails_or_cannot_tell(gate, code, word, slower, capsys):
    assert run(["compare", str(SAMPLES / "results" / "vllm-serve.json"), str(slower), "--fail-if", gate]) == code
    assert word in capsys.readouterr().err


def test_a_result_beside_a_baseline_is_judged(slower):
    before = str(SAMPLES / "results" / "vllm-serve.json")
    assert run(["diagnose", str(slower), "--baseline", before, "--format", "json"]) in (0, 1)


def test_a_speed_with_two_points_in_a_table_is_left_out_without_a_fault(tmp_path, capsys):
    path = tmp_path / "bench.md"
    path.write_text((SAMPLES / "results/llama-bench.md").read_text().replace("180.00", "180.00.00"))
    assert run(["diagnose", str(path)]) in (0, 3, 4)
    assert "fault of kvscope" not in capsys.readouterr().err
