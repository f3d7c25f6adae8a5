"""What every cache class of transformers holds is read from its tensors."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from probes.attach_transformers import TransformersRecorder, attach
from probes.model_rows import cache_of_input, cache_of_output, held, layers_of
from tests.unit.probes.llama import HEAD, KV_HEADS, LAYERS, TOKEN_BYTES, Rows, generate, prompt

pytestmark = pytest.mark.filterwarnings("ignore")


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


def options_of(kind: str) -> dict[str, Any]:
    """What ``generate`` is given for one kind of cache, made anew for every call."""
    if kind in ("dynamic", "static"):
        return {"cache_implementation": kind, "disable_compile": True}
    from transformers.cache_utils import DynamicCache, Fp8QuantizedLayer

    cache = DynamicCache()
    cache.layers = [Fp8QuantizedLayer() for _ in range(LAYERS)]
    return {"past_key_values": cache}


@pytest.mark.parametrize("kind", ["dynamic", "static", "quantised"])
def test_attached_scores_differ_no_more_than_two_runs_without(kind: str, model: Any, torch: Any) -> None:
    def scores() -> list[Any]:
        out = generate(model, torch, batch=2, output_scores=True, return_dict_in_generate=True, **options_of(kind))
        return list(out.scores)

    first, again = scores(), scores()
    recorder = attach(model, sink=Rows())
    attached = scores()
    recorder.detach()
    noise, change = (max((a - b).abs().max().item() for a, b in zip(first, other, strict=True))
                     for other in (again, attached))  # fmt: skip
    assert change <= noise == 0.0


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
