"""A transformers model is recorded as it is: real bytes, times and tokens, and never a changed result."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from probes.attach_transformers import TransformersRecorder, attach
from probes.cache_layers import cache_of_input, cache_of_output, held, layers_of
from probes.generation import REQUEST_COLUMNS
from probes.model_rows import columns
from probes.ring_reader import RingReader

pytestmark = pytest.mark.filterwarnings("ignore")
LAYERS, KV_HEADS, HEAD = 3, 2, 16
TOKEN_BYTES = 2 * KV_HEADS * HEAD * 4
"""Keys and values of one token in one layer, float32."""


class Rows:
    """A sink that keeps rows by name."""

    def __init__(self, layers: int = LAYERS) -> None:
        self.steps: list[dict[str, float]] = []
        self.requests: list[dict[str, float]] = []
        self._names = columns(layers)

    def write_step(self, values: Any) -> None:
        self.steps.append(dict(zip(self._names, values, strict=True)))

    def write_request(self, values: Any) -> None:
        self.requests.append(dict(zip(REQUEST_COLUMNS, values, strict=True)))

    def write_event(self, event: Any) -> None:
        raise AssertionError(event)


@pytest.fixture(scope="module")
def torch() -> Any:
    pytest.importorskip("transformers", reason="transformers is not installed")
    return pytest.importorskip("torch")


@pytest.fixture
def model(torch: Any) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD,
        vocab_size=97,
        pad_token_id=0,
        eos_token_id=None,
        bos_token_id=1,
    )
    return LlamaForCausalLM(config).eval()


@pytest.fixture
def rows(model: Any) -> Iterator[Rows]:
    found = Rows()
    recorder = attach(model, sink=found)
    yield found
    recorder.detach()


def prompt(torch: Any, batch: int = 1, length: int = 20) -> Any:
    return torch.arange(batch * length).reshape(batch, length) % 96 + 1


def generate(model: Any, torch: Any, batch: int = 1, length: int = 20, new: int = 6, **options: Any) -> Any:
    return model.generate(
        prompt(torch, batch, length), max_new_tokens=new, min_new_tokens=new, do_sample=False, **options
    )


def test_bytes_are_what_the_tensors_hold(model: Any, rows: Rows, torch: Any) -> None:
    out = generate(model, torch, batch=2, return_dict_in_generate=True)
    layers = cache_of_output(out).layers
    real = [layer.keys.numel() * 4 + layer.values.numel() * 4 for layer in layers]
    last = rows.steps[-1]
    assert [last[f"kv.bytes_per_layer[{layer}]"] for layer in range(LAYERS)] == real
    assert last["kv.resident_bytes"] == sum(real) == 2 * 25 * LAYERS * TOKEN_BYTES
    assert last["kv.bytes_per_token_measured"] == LAYERS * TOKEN_BYTES
    assert last["kv.overhead_bytes"] == 0
    assert (last["kv.used_tokens"], last["kv.entries"]) == (50, 50)


def test_steps_and_tokens_are_counted(model: Any, rows: Rows, torch: Any) -> None:
    generate(model, torch, batch=2)
    generate(model, torch, batch=2)
    last = rows.steps[-1]
    assert (last["batch.steps"], last["batch.decode_steps"], last["tokens.generated"]) == (12, 10, 24)
    assert (last["tokens.prompt"], last["requests.finished"]) == (80, 4)
    assert last["time.step"] == pytest.approx(last["time.prefill"] + last["time.decode"])
    assert last["time.prefill"] > 0


def test_a_request_has_its_times_tokens_and_bytes(model: Any, rows: Rows, torch: Any) -> None:
    generate(model, torch, batch=2)
    assert len(rows.requests) == 2
    row = rows.requests[0]
    assert (row["request.tokens_in"], row["request.tokens_out"]) == (20, 6)
    assert row["request.kv_bytes"] == 25 * LAYERS * TOKEN_BYTES
    assert row["latency.e2e"] == pytest.approx(row["latency.ttft"] + row["latency.tpot"] * 5)
    assert row["latency.ttft"] >= row["latency.prefill_time"] > 0


def test_a_sequence_ends_at_its_end_token(model: Any, torch: Any) -> None:
    ends = generate(model, torch)[0, 20:].tolist()
    found = Rows()
    recorder = attach(model, sink=found)
    model.generate(prompt(torch), max_new_tokens=6, do_sample=False, eos_token_id=ends[2])
    recorder.detach()
    assert found.requests[0]["request.tokens_out"] == ends.index(ends[2]) + 1


def test_accepted_drafts_are_tokens_and_rejected_ones_are_not_held(model: Any, rows: Rows, torch: Any) -> None:
    again = torch.tensor([[5, 6, 7, 8] * 6])
    first = model.generate(again, max_new_tokens=20, min_new_tokens=20, do_sample=False)
    plain = rows.steps[-1]["batch.steps"]
    out = model.generate(first, max_new_tokens=20, min_new_tokens=20, do_sample=False, prompt_lookup_num_tokens=3)
    new = out.shape[1] - first.shape[1]
    assert rows.requests[-1]["request.tokens_out"] == new
    assert rows.steps[-1]["tokens.generated"] == 20 + new
    assert rows.steps[-1]["batch.steps"] - plain <= new
    assert rows.steps[-1]["batch.context_tokens"] <= out.shape[1] + 3


def test_a_prompt_in_chunks_is_prefill_and_chooses_one_token(model: Any, rows: Rows, torch: Any) -> None:
    generate(model, torch, new=3, prefill_chunk_size=8)
    last = rows.steps[-1]
    assert last["tokens.prompt"] == 20
    assert (last["batch.decode_steps"], last["tokens.generated"]) == (2, 3)
    assert (rows.requests[0]["request.tokens_in"], rows.requests[0]["request.tokens_out"]) == (20, 3)


def test_a_decoder_behind_an_encoder_starts_from_its_own_start(torch: Any) -> None:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(d_model=32, d_kv=8, d_ff=32, num_layers=2, num_heads=4, vocab_size=97, decoder_start_token_id=0)
    found, model = Rows(2), T5ForConditionalGeneration(config).eval()
    recorder = attach(model, sink=found)
    generate(model, torch, new=4)
    assert recorder.active
    recorder.detach()
    last = found.steps[-1]
    assert (last["tokens.generated"], last["requests.finished"]) == (4, 1)
    # Four heads of eight: keys and values of 4 decoder tokens and of the 20 the encoder read.
    assert last["kv.resident_bytes"] == 2 * (4 + 20) * 2 * 4 * 8 * 4


def test_results_do_not_change(model: Any, torch: Any) -> None:
    before = generate(model, torch)
    recorder = attach(model, sink=Rows())
    during = generate(model, torch)
    recorder.detach()
    assert torch.equal(before, during)
    assert torch.equal(before, generate(model, torch))


def test_no_deprecated_name_is_asked_for() -> None:
    class Output:
        cache = None

        @property
        def past_key_values(self) -> Any:
            raise AssertionError("the old name was asked for")

    assert cache_of_output(Output()) is None
    old = type("Old", (), {"past_key_values": ()})()
    assert cache_of_output(old) == ()
    assert cache_of_input({"cache": None, "past_key_values": old}) is old


def test_detached_nothing_is_left_in_the_model(model: Any, torch: Any) -> None:
    found = Rows()
    recorder = attach(model, sink=found)
    recorder.detach()
    generate(model, torch)
    assert not found.steps
    assert "generate" not in vars(model)
    assert not model._forward_hooks
    assert not model._forward_pre_hooks


def test_a_static_cache_reserves_its_length_and_holds_what_was_seen(model: Any, rows: Rows, torch: Any) -> None:
    generate(model, torch, cache_implementation="static", disable_compile=True)
    last = rows.steps[-1]
    assert last["kv.resident_bytes"] == 25 * LAYERS * TOKEN_BYTES
    assert last["kv.reserved_bytes"] >= last["kv.resident_bytes"]
    assert last["kv.hot_entries[0]"] == 25


def test_a_sliding_window_layer_holds_its_window_and_a_view_keeps_its_storage(torch: Any) -> None:
    from transformers import MistralConfig, MistralForCausalLM

    config = MistralConfig(
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD,
        vocab_size=97,
        sliding_window=8,
        pad_token_id=0,
        eos_token_id=None,
    )
    found, model = Rows(), MistralForCausalLM(config).eval()
    recorder = attach(model, sink=found)
    generate(model, torch)
    recorder.detach()
    assert found.steps[0]["kv.resident_bytes"] == 7 * LAYERS * TOKEN_BYTES
    assert found.steps[0]["kv.reserved_bytes"] >= 20 * LAYERS * TOKEN_BYTES
    assert found.steps[-1]["kv.entries"] == 7


def test_a_quantised_cache_counts_codes_as_kv_and_scales_on_top(model: Any, rows: Rows, torch: Any) -> None:
    from transformers.cache_utils import DynamicCache, Fp8QuantizedLayer

    cache = DynamicCache()
    cache.layers = [Fp8QuantizedLayer() for _ in range(LAYERS)]
    generate(model, torch, past_key_values=cache)
    last = rows.steps[-1]
    codes = 25 * LAYERS * TOKEN_BYTES / 4
    assert last["kv.resident_bytes"] - last["kv.overhead_bytes"] == codes
    assert 0 < last["kv.overhead_bytes"] < codes
    assert last["kv.cold_entries[1]"] == 25


def test_an_offloaded_layer_is_cold(torch: Any) -> None:
    layer = (torch.zeros(1, KV_HEADS, 9, HEAD), torch.zeros(1, KV_HEADS, 9, HEAD))
    away, here = held(layer, 9, "cuda:0"), held(layer, 9, "cpu")
    assert (away.cold, away.hot, here.cold, here.hot) == (9, 0, 0, 9)
    assert away.live_bytes == here.live_bytes == 9 * TOKEN_BYTES


def test_self_and_cross_attention_of_one_layer_are_one_layer(torch: Any) -> None:
    from transformers.cache_utils import DynamicCache, EncoderDecoderCache

    def filled(length: int) -> Any:
        cache = DynamicCache()
        for layer in range(LAYERS):
            cache.update(torch.zeros(1, KV_HEADS, length, HEAD), torch.zeros(1, KV_HEADS, length, HEAD), layer)
        return cache

    layers = layers_of(EncoderDecoderCache(filled(4), filled(9)))
    assert len(layers) == LAYERS
    assert sum(held(part, 4, "cpu").live_bytes for part in layers[0]) == 13 * TOKEN_BYTES


def test_pairs_of_an_older_transformers_are_layers(torch: Any) -> None:
    pair = (torch.zeros(1, KV_HEADS, 5, HEAD), torch.zeros(1, KV_HEADS, 5, HEAD))
    assert [held(layer, 5, "cpu").live_bytes for (layer,) in layers_of((pair, pair))] == [5 * TOKEN_BYTES] * 2
    lists = type("Old", (), {"key_cache": [pair[0]], "value_cache": [pair[1]]})()
    assert held(layers_of(lists)[0][0], 5, "cpu").hot == 5


def test_a_forward_pass_outside_generate_is_a_step(model: Any, rows: Rows, torch: Any) -> None:
    out = model(prompt(torch), use_cache=True)
    name = "cache" if hasattr(out, "cache") else "past_key_values"
    model(torch.tensor([[5]]), use_cache=True, **{name: getattr(out, name)})
    assert [step["batch.decode_steps"] for step in rows.steps] == [0, 1]
    assert rows.steps[-1]["batch.context_tokens"] == 21
    assert rows.steps[-1]["tokens.generated"] == 0


def test_an_unknown_cache_is_one_line_and_times_go_on(
    model: Any, rows: Rows, torch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    from transformers.cache_utils import DynamicCache

    class Strange(DynamicCache):  # type: ignore[misc]
        @property
        def layers(self) -> Any:
            return tuple(self.own)

        @layers.setter
        def layers(self, value: Any) -> None:
            self.own = value

    caplog.set_level(logging.WARNING, "kvscope")
    cache = Strange()
    cache.own = []
    rows_before = len(rows.steps)
    out = type("Out", (), {"cache": cache})()
    recorder = TransformersRecorder(model)
    recorder.start(rows, LAYERS)
    try:
        for _ in range(3):
            recorder._before_forward(None, (prompt(torch),), {})
            recorder._after_forward(None, (), {}, out)
    finally:
        recorder.detach()
    assert len(rows.steps) == rows_before + 3
    assert [record.message for record in caplog.records] == [
        "kvscope reads no KV bytes: cache class Strange is unknown to it"
    ]
    assert rows.steps[-1]["kv.resident_bytes"] != rows.steps[-1]["kv.resident_bytes"]


def test_a_recorder_that_breaks_steps_aside_and_the_model_runs_on(
    model: Any, torch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Rows):
        def write_step(self, values: Any) -> None:
            raise OSError("disk full")

    expected = generate(model, torch)
    recorder = attach(model, sink=Broken())
    caplog.set_level(logging.WARNING, "kvscope")
    assert torch.equal(generate(model, torch), expected)
    assert not recorder.active
    assert len(caplog.records) == 1
    assert "disk full" in caplog.text


def test_something_that_is_no_model_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "kvscope")
    assert not attach(object(), sink=Rows()).active
    assert "stepped aside" in caplog.text


def test_an_error_of_the_model_is_the_callers(model: Any, rows: Rows, torch: Any) -> None:
    with pytest.raises(Exception, match=r".+"):
        model.generate(torch.tensor([[10_000]]), max_new_tokens=2)
    generate(model, torch)
    assert rows.steps[-1]["requests.finished"] == 1


def test_a_compiled_model_is_left_alone(model: Any, torch: Any) -> None:
    recorder = attach(model, sink=Rows())
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    with torch.no_grad():
        assert torch.equal(
            compiled(prompt(torch), use_cache=False).logits, compiled(prompt(torch), use_cache=False).logits
        )
    recorder.detach()


def test_rows_go_to_this_processs_flight_recorder(model: Any, torch: Any, tmp_path: Path) -> None:
    recorder = attach(model, directory=tmp_path)
    generate(model, torch)
    second = attach(model, directory=tmp_path)
    assert not second.active
    assert recorder.path is not None
    recorder.detach()
    with closing(RingReader(recorder.path)) as reader:
        assert reader.header["engine"] == "transformers"
        assert reader.header["version"] == sys.modules["transformers"].__version__
        assert len(reader.steps()) == 6
        assert len(reader.requests()) == 1
        assert reader.closed
