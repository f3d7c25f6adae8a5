"""A plan counts what models really keep, and says where rules of thumb go wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvscope.cli import run
from kvscope.errors import UsageError
from kvscope.plan import geometry, read_config
from kvscope.plan.forms import KvForms
from kvscope.plan.plan import Plan, make_plan

CONFIGS = Path("samples/configs")
ARTICLE = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_attention_heads": 32,
}


def plan(
    model: str | dict[str, Any], context: int, dtype: str = "bf16", index: str | None = None, **options: int
) -> Plan:
    config = read_config(model if isinstance(model, dict) else CONFIGS / f"{model}.json")
    memory = options.get("memory")
    return make_plan(config, context, options.get("users", 1), KvForms.named(dtype, index), memory)


def test_the_articles_example_takes_4_3_gb_a_request_and_about_70_gb_for_sixteen_users() -> None:
    found = plan(ARTICLE, 32768, "fp16", users=16)
    assert found.bytes_per_request == 4_294_967_296
    assert found.bytes_total == pytest.approx(70e9, rel=0.02)
    assert found.estimates[0].bytes_per_request == found.bytes_per_request
    assert found.bytes_per_token == 131072


@pytest.mark.parametrize(
    ("model", "dtype", "index", "bytes_per_token"),
    [
        ("deepseek-v3.2", "fp8", None, 48068),
        ("deepseek-v3.2", "bf16", "bf16", 85888),
        ("deepseek-v4-flash", "fp8", "fp8", 3850.25),
        ("deepseek-v4-flash", "fp8", "mxfp4", 3514.25),
        ("deepseek-v4-flash", "bf16", "bf16", 6880.0),
        ("deepseek-v4-pro", "fp8", "fp8", 5511.4375),
        ("deepseek-v4-pro", "fp8", "mxfp4", 5031.4375),
        ("deepseek-v4-pro", "bf16", "bf16", 9848.0),
    ],
)
def test_what_grows_agrees_with_the_layouts_of_the_engines(
    model: str, dtype: str, index: str | None, bytes_per_token: float
) -> None:
    million = 1 << 20
    found = plan(model, million, dtype, index)
    assert found.bytes_per_request - found.fixed_bytes == round(bytes_per_token * million)


@pytest.mark.parametrize(("model", "mebibytes"), [("deepseek-v4-flash", 14.7), ("deepseek-v4-pro", 22.2)])
def test_a_v4_request_costs_its_windows_and_states_before_the_first_token(model: str, mebibytes: float) -> None:
    assert plan(model, 1, "fp8").fixed_bytes / 2**20 == pytest.approx(mebibytes, abs=0.05)


def test_the_layers_of_v4_are_what_its_ratios_say_and_the_draft_layer_is_left_out() -> None:
    assert {kind: count for kind, (count, _) in plan("deepseek-v4-flash", 4096).by_kind.items()} == {
        "latent_window": 2,
        "csa": 21,
        "hca": 20,
    }
    assert {kind: count for kind, (count, _) in plan("deepseek-v4-pro", 4096).by_kind.items()} == {"hca": 31, "csa": 30}


def test_plain_models_keep_what_the_plain_formula_says() -> None:
    assert plan("llama-3.1-8b", 8192).bytes_per_token == 2 * 32 * 8 * 128 * 2
    assert plan("qwen3-8b", 8192, "fp8").bytes_per_token == 2 * 36 * 8 * 128


def test_a_window_stops_growing_and_the_formula_does_not() -> None:
    short, full, long = (plan("mistral-7b-v0.1", context) for context in (2048, 4096, 32768))
    assert short.bytes_per_request * 2 == full.bytes_per_request == long.bytes_per_request
    assert long.estimates[0].bytes_per_request == 8 * long.bytes_per_request


def test_gemma_has_ten_full_layers_and_fifty_two_with_a_window() -> None:
    found = plan("gemma-3-27b", 131072)
    row = 2 * 16 * 128 * 2
    assert found.by_kind == {"window": (52, 52 * 1024 * row), "full": (10, 10 * 131072 * row)}


def test_four_bits_are_half_a_byte_and_thirty_two_are_four() -> None:
    assert [plan(ARTICLE, 1024, dtype).bytes_per_request for dtype in ("int4", "int8", "fp32")] == [
        16777216 * 2,
        16777216 * 4,
        16777216 * 16,
    ]


@pytest.mark.parametrize(
    ("words", "kinds_expected"),
    [
        ({"model_type": "gpt_oss", "layer_types": ["sliding_attention", "full_attention"]}, ["window", "full"]),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "M*"}, ["mamba", "full"]),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "E-"}, ["none", "none"]),
        ({"model_type": "qwen3_next", "full_attention_interval": 2}, ["linear", "full"]),
        ({"model_type": "qwen2", "sliding_window": 8, "use_sliding_window": False}, ["full", "full"]),
        (
            {"model_type": "qwen2", "sliding_window": 8, "use_sliding_window": True, "max_window_layers": 1},
            ["full", "window"],
        ),
        ({"model_type": "mistral", "sliding_window": 8}, ["window", "window"]),
        ({"model_type": "mistral", "sliding_window": None}, ["full", "full"]),
        ({"model_type": "gemma3n_text", "num_kv_shared_layers": 1}, ["window", "shared"]),
        ({"model_type": "deepseek_v3", "kv_lora_rank": 8, "qk_rope_head_dim": 2}, ["mla", "mla"]),
    ],
)
def test_the_kind_of_each_layer_is_read_from_the_config(words: dict[str, Any], kinds_expected: list[str]) -> None:
    found = geometry({**ARTICLE, "num_hidden_layers": 2, **words})
    assert [layer.kind for layer in found.counted()] == kinds_expected


def test_a_recurrent_state_does_not_grow() -> None:
    sizes = {
        "model_type": "qwen3_next",
        "linear_num_value_heads": 32,
        "linear_num_key_heads": 16,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "full_attention_interval": 4,
    }
    found, forms = geometry({**ARTICLE, **sizes}), KvForms.named("bf16")
    grown = found.held(2048, forms).total_bytes - found.held(1024, forms).total_bytes
    assert grown == 8 * 1024 * 4096
    assert found.state_bytes() == 24 * (32 * 128 * 128 * 4 + 8192 * 3 * 2)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({}, "no model_type"),
        ({"model_type": "llama"}, "'llama' without num_hidden_layers"),
        ({"model_type": "llamma", "num_hidden_layers": 2}, "did you mean 'llama'"),
        ({"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4}, "without hidden_size"),
        ({**ARTICLE, "sliding_windo": 512}, "sliding_windo is 512"),
        ({**ARTICLE, "use_sliding_window": True}, "use_sliding_window is True"),
        ({**ARTICLE, "num_key_value_heads": "8"}, "expected a positive whole number"),
        ({**ARTICLE, "model_type": "gpt_oss", "layer_types": ["full_attention"]}, "expected a list of 32 entries"),
        ({**ARTICLE, "model_type": "gpt_oss", "layer_types": ["full_atention"] * 32}, "did you mean 'full_attention'"),
        ({**ARTICLE, "model_type": "deepseek_v4", "compress_ratios": [2] * 32}, "known ratios: 0, 4, 128"),
    ],
)
def test_a_config_that_leaves_something_open_is_refused(values: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        plan(values, 1024)


def test_the_command_prints_whole_numbers_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    config = str(CONFIGS / "llama-3.1-8b.json")
    argv = ["plan", "--config", config, "--context", "32768", "--users", "16", "--kv-dtype", "fp16"]
    assert run([*argv, "--memory", "64GB", "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["bytes_per_token"], report["bytes_per_request"]) == (131072, 4294967296)
    assert report["bytes_total"] == 16 * 4294967296
    assert report["requests_that_fit"] == 14
    assert report["per_layer"][31] == {"layer": 31, "kind": "full", "bytes": 134217728}
    assert all(isinstance(one["bytes"], int) for one in report["per_layer"])


def test_the_text_says_where_formula_and_count_part(capsys: pytest.CaptureFixture[str]) -> None:
    config = str(CONFIGS / "gemma-3-27b.json")
    assert run(["plan", "--config", config, "--context", "128K", "--memory", "80GiB", "--weights", "54GB"]) == 0
    said = capsys.readouterr().out
    assert "52 layers window" in said
    assert "fit" in said


def test_a_mix_of_lengths_and_a_measured_curve_stand_beside_the_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    curve = tmp_path / "curve.json"
    curve.write_text('{"curve": [[0, 0.8], [8192, 0.4]], "margin": 0.25}')
    argv = ["plan", "--config", str(CONFIGS / "llama-3.1-8b.json"), "--context", "16K", "--memory", "80GB"]
    assert run([*argv, "--mix", "50:1K,50:3K", "--curve", str(curve), "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["mix_bytes_per_request"] == 2048 * 131072
    assert report["mix_requests_that_fit"] == 80_000_000_000 // (2048 * 131072)
    assert report["formulas"][-1]["of_counted"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--curve", "nothing.json"], "expected a file of kvscope bench curve"),
        (["--mix", "half"], "expected PERCENT:LOW-HIGH"),
        (["--kv-dtype", "fp7"], "did you mean 'fp8'"),
        (["--context", "many"], "expected a whole number of tokens"),
        (["--users", "0"], "expected at least 1"),
        (["--memory", "lots"], "expected bytes"),
        (["--format", "yaml"], "expected text or json"),
        (["--config", "nothing.json"], "no such file"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["plan", "--config", str(CONFIGS / "qwen3-8b.json"), "--context", "1024", *words]
    assert run(argv) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1
