"""A plan counts what models really keep, and says where rules of thumb go wrong."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kvscope.cli import run
from kvscope.errors import UsageError
from kvscope.plan import Geometry, geometry
from kvscope.plan.bound import estimates
from kvscope.plan.forms import KvForms
from kvscope.plan.weights import Weights

CONFIGS = Path("samples/configs")
ARTICLE = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_attention_heads": 32,
}


def model_of(model: str | dict[str, Any]) -> Geometry:
    return geometry(model if isinstance(model, dict) else CONFIGS / f"{model}.json")


def held(model: str | dict[str, Any], context: int, dtype: str = "bf16", index: str | None = None) -> int:
    found = model_of(model)
    return found.held(context, found.forms(dtype, index)).total_bytes


def by_kind(model: str) -> dict[str, int]:
    return dict(Counter(layer.kind for layer in model_of(model).counted()))


def test_the_articles_example_takes_4_3_gb_a_request_and_about_70_gb_for_sixteen_users() -> None:
    assert held(ARTICLE, 32768, "fp16") == 4_294_967_296
    assert 16 * held(ARTICLE, 32768, "fp16") == pytest.approx(70e9, rel=0.02)
    assert estimates(model_of(ARTICLE), 32768, KvForms.named("fp16"))[0].bytes_per_request == 4_294_967_296


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
    found = model_of(model)
    assert found.held(million, found.forms(dtype, index)).growing_bytes == round(bytes_per_token * million)


@pytest.mark.parametrize(("model", "mebibytes"), [("deepseek-v4-flash", 14.7), ("deepseek-v4-pro", 22.2)])
def test_a_v4_request_costs_its_windows_and_states_before_the_first_token(model: str, mebibytes: float) -> None:
    found = model_of(model)
    assert found.held(1, found.forms("fp8")).fixed_bytes / 2**20 == pytest.approx(mebibytes, abs=0.05)


def test_the_layers_of_v4_are_what_its_ratios_say_and_the_draft_layer_is_left_out() -> None:
    assert by_kind("deepseek-v4-flash") == {"latent_window": 2, "csa": 21, "hca": 20}
    assert by_kind("deepseek-v4-pro") == {"hca": 31, "csa": 30}


def test_plain_models_keep_what_the_plain_formula_says() -> None:
    assert held("llama-3.1-8b", 8192) == 8192 * 2 * 32 * 8 * 128 * 2
    assert held("qwen3-8b", 8192, "fp8") == 8192 * 2 * 36 * 8 * 128


def test_a_window_stops_growing_and_the_formula_does_not() -> None:
    assert held("mistral-7b-v0.1", 2048) * 2 == held("mistral-7b-v0.1", 4096) == held("mistral-7b-v0.1", 32768)
    said = estimates(model_of("mistral-7b-v0.1"), 32768, KvForms.named("bf16"))[0]
    assert said.bytes_per_request == 8 * held("mistral-7b-v0.1", 32768)


def test_gemma_has_ten_full_layers_and_fifty_two_with_a_window() -> None:
    row = 2 * 16 * 128 * 2
    assert by_kind("gemma-3-27b") == {"window": 52, "full": 10}
    assert held("gemma-3-27b", 131072) == 52 * 1024 * row + 10 * 131072 * row


def test_a_number_takes_what_its_format_says_scales_included() -> None:
    plain = 1024 * 32 * 8 * 2 * 128
    sizes = {dtype: held(ARTICLE, 1024, dtype) / plain for dtype in ("int4", "fp8", "fp32", "q8_0", "nvfp4", "mxfp4")}
    assert sizes == {"int4": 0.5, "fp8": 1.0, "fp32": 4.0, "q8_0": 34 / 32, "nvfp4": 9 / 16, "mxfp4": 17 / 32}


def test_keys_and_values_may_have_formats_of_their_own() -> None:
    mixed = held(ARTICLE, 1024, "q8_0:q4_0")
    assert mixed == (held(ARTICLE, 1024, "q8_0") + held(ARTICLE, 1024, "q4_0")) // 2


def test_a_step_reads_what_is_kept_but_only_the_chosen_rows_of_a_sparse_index() -> None:
    dense = model_of("llama-3.1-8b")
    forms = dense.forms("bf16")
    assert dense.read(8192, forms).kv_bytes == dense.held(8192, forms).total_bytes
    sparse = model_of("deepseek-v3.2")
    read = sparse.read(131072, sparse.forms("fp8"))
    assert read.kv_bytes == 61 * 2048 * 656
    assert read.index_bytes == 61 * 131072 * 132


def test_heads_are_split_over_ranks_until_there_is_one_each_and_latent_rows_are_whole() -> None:
    plain, latent = model_of("llama-3.1-8b"), model_of("deepseek-v3")
    forms = plain.forms("bf16")
    assert [plain.token_bytes(64, forms, tp) for tp in (1, 2, 8, 16)] == [131072, 65536, 16384, 16384]
    assert latent.token_bytes(64, forms, 8) == latent.token_bytes(64, forms, 1)
    with pytest.raises(UsageError, match="8 KV heads cannot be split over 3 ranks"):
        plain.token_bytes(64, forms, 3)


def test_experts_that_a_batch_touches_grow_with_it() -> None:
    found = Weights(100, 50, 10, 80, 0, 128, 8, "as said")
    assert found.read_bytes(1) == 20 + 80 * 8 // 128
    assert found.read_bytes(64) == pytest.approx(20 + 80 * (1 - (1 - 8 / 128) ** 64), abs=1)


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
    ("name", "more"),
    [
        ("gemma-2-9b", {"sliding_window_size": 4096, "cache_implementation": "hybrid", "query_pre_attn_scalar": 256}),
        ("falcon-h1-7b", {"ssm_multipliers": [1.0], "ssm_in_multiplier": 1.0, "mamba_rms_norm": True}),
        ("minimax-m1", {"linear_attn_alpha_factor": 1, "layernorm_linear_attention_beta": 3.5, "postnorm": True}),
        ("longcat-flash", {"mla_scale_kv_lora": True, "attention_method": "MLA"}),
        ("jamba-v0.1", {"mamba_inner_layernorms": True, "use_mamba_kernels": True, "mamba_dt_rank": 256}),
        ("hunyuan-large", {"use_mla": False, "kv_lora_rank": 512, "v_head_dim": 64, "qk_rope_head_dim": 64}),
        ("zamba2-2.7b", {"state_size": 64, "num_query_groups": 32, "lora_rank": 128}),
        ("command-r7b", {"layer_switch": 4, "order_of_interleaved_layers": "local_attn_first"}),
        ("llama-3.1-8b", {"pretraining_tp": 1, "mlp_bias": False, "rope_scaling": {"factor": 8.0}}),
    ],
)
def test_keys_that_decide_nothing_change_nothing(name: str, more: dict[str, Any]) -> None:
    values = json.loads((CONFIGS / f"{name}.json").read_text())
    assert geometry({**values, **more}).layers == geometry(values).layers


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({}, "no model_type"),
        ({"model_type": "llama"}, "'llama' without num_hidden_layers"),
        ({"model_type": "llamma", "num_hidden_layers": 2}, "did you mean 'llama'"),
        ({"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4}, "without hidden_size"),
        ({**ARTICLE, "model_type": "hunyuan", "use_mla": True}, "latent attention of this family"),
        ({**ARTICLE, "num_kv_head": 8}, "num_kv_head is 8"),
        ({**ARTICLE, "attention_window": 8}, "attention_window is 8"),
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
        held(values, 1024)


def test_the_command_prints_whole_numbers_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["plan", str(CONFIGS / "llama-3.1-8b.json"), "--context", "32768", "--users", "14", "--kv-dtype", "fp16"]
    assert run([*argv, "--memory", "64GB", "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["schema"] == 1
    assert report["per_gpu"] == {
        "bytes_per_token": 131072,
        "growing_bytes_per_token": 131072,
        "state_bytes_per_request": 0,
        "request_bytes": 4294967296,
        "pool_bytes": 64_000_000_000,
        "pool_tokens": 488281,
        "max_concurrency": pytest.approx(14.9012, abs=1e-4),
    }
    assert report["layers"][0]["kind"] == "full"
    assert (report["layers"][0]["count"], report["layers"][0]["bytes_per_token"]) == (32, 4096)


@pytest.mark.parametrize(("users", "code"), [("14", 0), ("15", 1)])
def test_what_does_not_fit_ends_in_one(users: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["plan", str(CONFIGS / "llama-3.1-8b.json"), "--context", "32768", "--memory", "64GB", "--users", users]
    assert run(argv) == code
    assert ("all fit" if code == 0 else "1 too many") in capsys.readouterr().out


def test_a_card_gives_memory_and_the_least_time_of_a_token(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["plan", str(CONFIGS / "llama-3.1-8b.json"), "--context", "8K", "--gpu", "H200", "--weights", "16GB"]
    assert run([*argv, "--engine", "vllm", "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["memory"]["pool_bytes"] == pytest.approx(139.8 * 2**30 * 0.92 - 16e9, rel=0.01)
    assert report["bound"]["step_s"] == pytest.approx((16e9 + 2**30) / 4.8e12, rel=0.1)
    assert report["bound"]["kv_overtakes_weights_at"] in range(14, 17)


def test_every_gpu_of_a_deployment_is_summed(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["plan", str(CONFIGS / "deepseek-v3.json"), "--context", "4096", "--format", "json", "--memory", "10GiB"]
    assert run([*argv, "--tp", "8"]) == 0
    split = json.loads(capsys.readouterr().out)
    assert split["whole"]["request_bytes"] == 8 * split["per_gpu"]["request_bytes"]
    assert run([*argv, "--tp", "8", "--dp-attention"]) == 0
    apart = json.loads(capsys.readouterr().out)
    assert apart["whole"]["request_bytes"] == apart["per_gpu"]["request_bytes"] == split["per_gpu"]["request_bytes"]
    assert apart["whole"]["max_concurrency"] == pytest.approx(8 * split["whole"]["max_concurrency"])
    assert run([*argv, "--pp", "4"]) == 0
    staged = json.loads(capsys.readouterr().out)
    assert staged["whole"]["request_bytes"] == split["per_gpu"]["request_bytes"]
    assert staged["per_gpu"]["request_bytes"] == pytest.approx(split["per_gpu"]["request_bytes"] / 4, rel=0.1)


def test_the_text_explains_its_rules_where_asked(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["plan", str(CONFIGS / "gemma-3-27b.json"), "--context", "128K", "--engine", "vllm"]
    assert run(argv) == 0
    short = capsys.readouterr().out
    assert run([*argv, "--explain"]) == 0
    said = capsys.readouterr().out
    assert "rules of vllm 0.33.0, read from" not in short
    assert "rules of vllm 0.33.0, read from" in said
    assert "52 layers window" not in said
    assert "rule of thumb" in said


def test_a_page_stands_alone_and_escapes_what_a_config_says(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    values = {**ARTICLE, "max_position_embeddings": 131072, "_name_or_path": "<script>alert(1)</script>"}
    config.write_text(json.dumps(values))
    assert run(["plan", str(config), "--context", "8K", "--format", "html"]) == 0
    page = capsys.readouterr().out
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "<svg" in page


def test_a_mix_of_lengths_and_a_measured_curve_stand_beside_the_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    curve = tmp_path / "curve.json"
    curve.write_text('{"curve": [[0, 0.8], [8192, 0.4]], "margin": 0.25}')
    argv = ["plan", str(CONFIGS / "llama-3.1-8b.json"), "--context", "16K", "--memory", "80GB"]
    assert run([*argv, "--mix", "50:1K,50:3K", "--curve", str(curve), "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["mix_bytes_per_request"] == 2048 * 131072
    assert report["mix_requests_that_fit"] == 80_000_000_000 // (2048 * 131072)
    assert report["formulas"][-1]["bytes_per_request"] == pytest.approx(16384 * 131072 * 0.5)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--curve", "nothing.json"], "expected a file of kvscope bench curve"),
        (["--mix", "half"], "expected PERCENT:LOW-HIGH"),
        (["--kv-dtype", "fp7"], "did you mean 'fp8'"),
        (["--context", "many"], "expected a whole number of tokens"),
        (["--users", "0"], "expected at least 1"),
        (["--memory", "lots"], "expected bytes"),
        (["--format", "yaml"], "expected text, json or html"),
        (["--engine", "vlm"], "did you mean 'vllm'"),
        (["--gpu", "H201"], "did you mean"),
        (["--tp", "0"], "expected 1 to 1024"),
        (["--tp", "8", "--dp-attention", "3"], "expected a divisor"),
        (["--pp", "64"], "expected at most the 36 layers"),
        (["--weights", "1GB"], "expected the memory"),
        (["--config", "nothing.json"], "beside a server or its log only"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["plan", str(CONFIGS / "qwen3-8b.json"), "--context", "1024", *words]
    assert run(argv) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(("name", "says"), [("deepseek-v3.2", "without vocab_size"), ("zamba2-2.7b", "no formula")])
def test_weights_that_are_not_counted_are_asked_for_by_what_is_missing(
    name: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["plan", str(CONFIGS / f"{name}.json"), "--context", "1024", "--gpu", "H200"]
    assert run(argv) == 2
    said = capsys.readouterr().err
    assert says in said
    assert "expected --weights BYTES" in said
