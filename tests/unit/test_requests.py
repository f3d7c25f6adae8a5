"""One request explained: its parts add up, and those it waited for are those who were there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvscope.authoring import drain
from kvscope.errors import SourceError
from kvscope.requests import Request, explain, finished
from kvscope.sources import open_target
from kvscope.sources.requests import RequestsSource
from kvscope.store import Store
from probes.sample import Sample

SPANS = Path(__file__).parents[2] / "samples/requests/vllm-0.32.0.jsonl"
T0 = 1_700_000_000.0


def span(end: float, queue: float, prefill: float, decode: float, tokens: int = 100) -> dict[str, object]:
    whole = queue + prefill + decode
    told = {
        "gen_ai.latency.time_in_queue": queue,
        "gen_ai.latency.time_in_model_prefill": prefill,
        "gen_ai.latency.time_in_model_decode": decode,
        "gen_ai.latency.time_to_first_token": queue + prefill,
        "gen_ai.latency.e2e": whole,
    }
    sizes = {"gen_ai.usage.prompt_tokens": tokens, "gen_ai.usage.completion_tokens": 11}
    attributes = [{"key": name, "value": {"doubleValue": value}} for name, value in told.items()]
    attributes += [{"key": name, "value": {"intValue": str(value)}} for name, value in sizes.items()]
    attributes.append({"key": "gen_ai.prompt.0.content", "value": {"stringValue": "a secret"}})
    nanos = [str(int((T0 + at) * 1e9)) for at in (end - whole, end)]
    return {"name": "llm_request", "startTimeUnixNano": nanos[0], "endTimeUnixNano": nanos[1], "attributes": attributes}


def saved(tmp_path: Path, *spans: dict[str, object], lines: bool = True) -> Path:
    path = tmp_path / "spans.jsonl"
    documents = [{"resourceSpans": [{"scopeSpans": [{"scope": {"name": "vllm"}, "spans": [one]}]}]} for one in spans]
    one = {"resourceSpans": [{"scopeSpans": [{"scope": {"name": "vllm"}, "spans": list(spans)}]}]}
    path.write_text("\n".join(map(json.dumps, documents)) if lines else json.dumps(one, indent=2))
    return path


def read(path: Path) -> tuple[Store, dict[str, Request]]:
    store, _ = drain(open_target(str(path)))
    return store, finished(store)


@pytest.mark.parametrize("lines", [True, False])
def test_spans_become_requests_whose_parts_add_up_to_their_whole(tmp_path: Path, lines: bool) -> None:
    path = saved(tmp_path, span(10.0, 2.0, 1.0, 4.0), span(6.0, 0.0, 1.5, 3.0), lines=lines)
    _, found = read(path)
    first, second = found.values()
    assert dict(first.parts) == pytest.approx({"queue": 0.0, "prefill": 1.5, "decode": 3.0}, abs=1e-5)
    assert dict(second.parts) == pytest.approx({"queue": 2.0, "prefill": 1.0, "decode": 4.0}, abs=1e-5)
    assert second.get("latency.tpot") == pytest.approx(0.4)


def test_it_waited_for_those_who_were_in_the_engine_and_for_no_others(tmp_path: Path) -> None:
    # One ran while it waited, one had ended before it came, one came after it had been let in.
    waited = span(20.0, 5.0, 1.0, 4.0)
    ran = span(16.0, 0.0, 4.0, 4.0, tokens=4000)
    gone, later = span(9.0, 0.0, 1.0, 2.0, tokens=777), span(30.0, 0.0, 1.0, 9.0, tokens=888)
    store, found = read(saved(tmp_path, waited, ran, gone, later))
    one = next(one for one in found.values() if one.get("sched.queue_time"))
    said = " ".join(explain(one, found.values(), store).lines)
    assert "while another was in the engine" in said
    assert "4000" in said
    assert "777" not in said
    assert "888" not in said


def test_what_ran_and_waited_follows_from_the_spans(tmp_path: Path) -> None:
    store, _ = read(saved(tmp_path, span(20.0, 5.0, 1.0, 4.0), span(16.0, 0.0, 4.0, 4.0, tokens=4000)))
    times, waiting = store.series("sched.waiting", (), None, None)
    _, running = store.series("sched.running", (), None, None)
    seconds = [round(t - T0) for t in times]
    assert seconds[0] == 8
    assert [value for at, value in zip(seconds, waiting, strict=True) if 10 <= at < 15] == [1.0] * 5
    assert [value for at, value in zip(seconds, running, strict=True) if at == 15] == [2.0]
    assert store.latest("tokens.generated", ()) == pytest.approx(22.0)
    assert store.latest("tokens.prompt", ()) == pytest.approx(4100.0)


def test_what_nobody_told_is_said_and_not_guessed(tmp_path: Path) -> None:
    store, found = read(saved(tmp_path, span(6.0, 0.0, 1.5, 3.0)))
    missing = " ".join(explain(next(iter(found.values())), found.values(), store).missing)
    assert "cached tokens" in missing
    assert "evictions" in missing


def test_evictions_and_preemptions_of_its_time_are_counted() -> None:
    row = {"sched.queue_time": 2.0, "latency.prefill_time": 1.0, "latency.e2e": 6.0}
    one = Request("a", T0 + 10, {**row, "request.preemptions": 2.0})
    store = Store()
    for at, blocks in ((0, 5), (6, 7), (7, 19), (12, 40)):
        store.add([Sample("cache.evictions", float(blocks), T0 + at)])
    said = " ".join(explain(one, [one], store).lines)
    assert "12 cached blocks were evicted while its prompt was computed" in said
    assert "preempted 2 times" in said


def test_an_export_gives_the_same_view_and_no_prompt(tmp_path: Path) -> None:
    path = tmp_path / "sglang-request-metrics-20261201_10.log"
    times = {"request_received_ts": T0, "request_sent_to_scheduler_ts": T0 + 0.01, "prefill_finished_ts": T0 + 1.51}
    told = {"prompt_tokens": 900, "completion_tokens": 21, "cached_tokens": 300, "e2e_latency": 3.5, "queue_time": 0.5}
    line = {"request_parameters": '{"text": "a secret"}', "id": "x", **told, **times, "decode_finished_ts": T0 + 3.5}
    path.write_text(json.dumps(line) + "\n")
    store, found = read(path)
    (one,) = found.values()
    assert dict(one.parts) == pytest.approx({"queue": 0.5, "prefill": 1.0, "decode": 2.0})
    assert one.get("request.prefix_hits") == 300
    assert "secret" not in " ".join(explain(one, found.values(), store).lines)


def test_a_real_run_never_ran_more_than_it_may_and_its_queue_is_most_of_it() -> None:
    store, found = read(SPANS)
    _, running = store.series("sched.running", (), None, None)
    assert len(found) == 24
    assert max(running) == 4.0
    slowest = max(found.values(), key=lambda one: one.get("latency.e2e") or 0.0)
    parts = dict(explain(slowest, found.values(), store).parts)
    assert sum(parts.values()) == pytest.approx(slowest.get("latency.e2e"), rel=0.05)
    assert parts["queue"] > 0.5 * sum(parts.values())


def test_a_request_without_its_tokens_and_a_scope_of_another_shape_are_read(tmp_path: Path) -> None:
    path = tmp_path / "export.jsonl"
    told = {"e2e_latency": 3.5, "queue_time": 0.5, "request_received_ts": T0, "prefill_finished_ts": T0 + 1.5}
    path.write_text(json.dumps({"request_parameters": "{}", **told, "decode_finished_ts": T0 + 3.5}) + "\n")
    assert read(path)[0].latest("requests.finished") == 1.0
    spans = [{"scope": "vllm", "spans": [span(4.0, 0.5, 1.0, 2.0)]}]
    path.write_text(json.dumps({"resourceSpans": [{"scopeSpans": spans}]}) + "\n")
    assert len(read(path)[1]) == 1


def test_a_duration_that_is_no_number_is_none(tmp_path: Path) -> None:
    path = tmp_path / "export.jsonl"
    told = {"e2e_latency": None, "queue_time": 0.5, "request_received_ts": T0, "completion_tokens": 3}
    path.write_text(json.dumps({"request_parameters": "{}", **told}) + "\n")
    (one,) = read(path)[1].values()
    assert one.get("latency.e2e") is None


def test_a_file_without_one_request_is_refused_by_what_was_expected(tmp_path: Path) -> None:
    path = tmp_path / "spans.jsonl"
    path.write_text('{"resourceSpans": []}\n')
    with pytest.raises(SourceError, match=r"expected gen_ai\.latency"):
        RequestsSource(path).poll()


LOG = Path(__file__).parents[2] / "samples/logs/llamacpp-b11434.log"


def test_llamacpps_log_tells_both_parts_of_a_request_and_says_that_its_queue_is_not_known() -> None:
    store, found = read(LOG)
    slowest = max(found.values(), key=lambda one: one.whole or 0.0)
    assert slowest.whole == pytest.approx(18.16782)
    assert dict(slowest.parts) == pytest.approx({"prefill": 12.24472, "decode": 5.92310})
    assert (slowest.prompt, slowest.get("request.tokens_out")) == (1208, 200)
    told = explain(slowest, found.values(), store)
    assert told.lines[0] == "1208 prompt tokens computed, 200 out"
    assert told.lines[1].startswith("while its prompt was computed, 3 prompts of others (3624 tokens)")
    assert {line.partition(":")[0] for line in told.missing} == {"queue", "prefix", "evictions"}


def test_what_steps_stood_still_for_while_it_ran_is_said() -> None:
    store = Store()
    row = {"latency.e2e": 4.0, "sched.queue_time": 0.0, "latency.ttft": 1.0, "request.tokens_out": 5.0}
    store.add([Sample("tier.stall_time", value, T0 + at, ()) for at, value in ((0.0, 1.0), (5.0, 2.5))])
    store.add([Sample(metric, value, T0 + 5.0, ()) for metric, value in row.items()])
    (only,) = finished(store).values()
    said = explain(only, [only], store).lines
    assert "steps stood still for 1.50 s of its time: KV was fetched from a slower tier" in said
    assert said[0] == "unknown prompt tokens in, 5 out"
