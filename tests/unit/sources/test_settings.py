"""What engines call their settings, who is believed, and how wide their KV is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvscope import kv_types
from kvscope.errors import UsageError
from kvscope.sources.settings import TABLES, Settings, load_model, of_document, of_model, of_person
from probes.catalog import CATALOG

CONFIGS = Path(__file__).parents[3] / "samples" / "configs"


def test_every_option_means_a_metric_of_the_catalogue():
    assert {option.metric for table in TABLES.values() for option in table.values()} <= set(CATALOG)


@pytest.mark.parametrize(
    ("engine", "name", "text", "metric", "value"),
    [
        ("vllm", "--max-num-batched-tokens", "8192", "config.max_batched_tokens", 8192.0),
        ("vllm", "enforce_eager", "True", "config.graphs", 0.0),
        ("vllm", "cudagraph_mode", "<CUDAGraphMode.NONE: 0>", "config.graphs", 0.0),
        ("vllm", "cudagraph_capture_sizes", "[1, 2, 4, 64]", "config.graph_max_batch", 64.0),
        ("vllm", "speculative_config", "None", "config.speculative", 0.0),
        ("sglang", "--disable-radix-cache", "", "config.prefix_caching", 0.0),
        ("sglang", "hicache_size", "20", "config.host_cache_bytes", 20e9),
        ("llama.cpp", "-np", "4", "sched.max_running", 4.0),
        ("llama.cpp", "flash_attn", "disabled", "config.flash_attention", 0.0),
        ("tensorrt-llm", "max_num_tokens", "4096", "config.max_batched_tokens", 4096.0),
        ("lmdeploy", "session_len", "32768", "config.max_context", 32768.0),
        ("ollama", "OLLAMA_NUM_PARALLEL", "4", "sched.max_running", 4.0),
    ],
)
def test_an_option_is_read_in_the_engine_s_spelling(engine, name, text, metric, value):
    settings = Settings(engine)
    assert settings.read(name, text, "command line")
    assert settings.values()[metric] == value


def test_who_is_surer_is_believed_and_named():
    settings = Settings("vllm")
    settings.read("max_num_seqs", "64", "log")
    settings.read("max_num_seqs", "256", "command line")
    assert settings.values()["sched.max_running"] == 64.0
    of_person(settings, ["sched.max_running=32"])
    said = [sample for sample in settings.samples(1.0) if sample.metric == "config.said"]
    assert dict(said[-1].labels) == {"setting": "sched.max_running", "source": "person", "value": "32"}
    assert list(settings.samples(2.0)) == []


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("torch.bfloat16", 16.0),
        ("fp8_e4m3", 8.0),
        ("torch.float8_e4m3fn", 8.0),
        ("q8_0", 8.5),
        ("q4_0", 4.5),
        ("nvfp4", 4.5),
        ("int8_per_token_head", 8.25),
        ("fp8_ds_mla", 656 * 8 / 576),
        ("turboquant_k8v4", (8 + 4 + 32 / 128) / 2),
        ("k=q8_0,v=q4_0", 6.5),
    ],
)
def test_a_kv_type_has_its_bits_with_scales(name, bits):
    found = kv_types.find(name)
    assert found is not None
    assert found.bits() == pytest.approx(bits)


def test_an_unknown_kv_type_stays_unknown():
    settings = Settings("vllm")
    settings.read("kv_cache_dtype", "somequant_3bit", "log")
    assert "config.kv_bits" not in settings.values()
    assert kv_types.find("auto") is None


def test_auto_is_what_the_model_computes_in_once_that_is_said():
    settings = Settings("vllm")
    settings.read("kv_cache_dtype", "auto", "log")
    assert "config.kv_bits" not in settings.values()
    settings.read("dtype", "torch.bfloat16", "log")
    assert settings.values()["config.kv_bits"] == 16.0


def test_a_document_is_read_however_deep_and_nothing_else_is_kept():
    settings = Settings("sglang")
    server = {
        "api_key": "secret",
        "mem_fraction_static": 0.85,
        "internal_states": [{"memory_usage": {"token_capacity": 99}}],
    }
    assert of_document(settings, server) == 2
    assert settings.values() == {"config.memory_utilization": 0.85, "kv.capacity_tokens": 99.0}
    assert "secret" not in repr(list(settings.samples(0.0)))


def test_a_model_s_config_says_heads_layers_and_window(tmp_path):
    settings = Settings("vllm")
    of_model(settings, load_model(str(CONFIGS / "deepseek-v3.2.json")))
    assert settings.values()["config.kv_heads"] == 1.0
    path = tmp_path / "config.json"
    path.write_text(json.dumps([1]))
    with pytest.raises(UsageError, match="expected a JSON object"):
        load_model(str(path))


def test_a_type_that_a_terminal_would_obey_is_escaped_in_its_tag():
    settings = Settings("vllm")
    settings.read("kv_cache_dtype", "\x1b]0;x\x07", "page")
    assert settings.tags()["dtype"].isprintable()


def test_a_config_that_is_no_file_or_too_deep_is_refused_in_a_line(tmp_path):
    deep = tmp_path / "deep.json"
    deep.write_text("[" * 100_000)
    for path in ("/dev/zero", str(deep), str(tmp_path)):
        with pytest.raises(UsageError, match="not a model's config"):
            load_model(path)


@pytest.mark.parametrize("text", ["config.kv_tpe=8", "x", "config.graphs=often", "config.kv_type=fp9"])
def test_what_a_person_says_wrongly_is_named(text):
    with pytest.raises(UsageError, match="--set"):
        of_person(Settings("vllm"), [text])
