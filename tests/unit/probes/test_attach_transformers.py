"""A transformers model is recorded as it is: times, tokens and bytes, and never a changed result."""

from __future__ import annotations

import logging
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from probes.attach_transformers import attach
from probes.model_rows import cache_of_output
from probes.ring_reader import RingReader
from tests.unit.probes.llama import LAYERS, TOKEN_BYTES, Rows, generate, prompt

pytestmark = pytest.mark.filterwarnings("ignore")


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


def test_results_do_not_change(model: Any, torch: Any) -> None:
    before = generate(model, torch)
    recorder = attach(model, sink=Rows())
    during = generate(model, torch)
    recorder.detach()
    assert torch.equal(before, during)
    assert torch.equal(before, generate(model, torch))


def test_detached_nothing_is_left_in_the_model(model: Any, torch: Any) -> None:
    found = Rows()
    recorder = attach(model, sink=found)
    recorder.detach()
    generate(model, torch)
    assert not found.steps
    assert "generate" not in vars(model)
    assert not model._forward_hooks
    assert not model._forward_pre_hooks


def test_a_forward_pass_outside_generate_is_a_step(model: Any, rows: Rows, torch: Any) -> None:
    out = model(prompt(torch), use_cache=True)
    name = "cache" if hasattr(out, "cache") else "past_key_values"
    model(torch.tensor([[5]]), use_cache=True, **{name: getattr(out, name)})
    assert [step["batch.decode_steps"] for step in rows.steps] == [0, 1]
    assert rows.steps[-1]["batch.context_tokens"] == 21
    assert rows.steps[-1]["tokens.generated"] == 0


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
