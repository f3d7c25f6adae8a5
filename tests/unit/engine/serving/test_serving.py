"""The OpenAI routes over HTTP: what is said, what is counted, what is refused, and what a client that leaves costs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.unit.engine.serving.live import LONGEST, MODEL, Live, closing, events, send
from tests.unit.engine.tiny import engine, greedy, prompt

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
PROMPT = list(prompt(20))


@pytest.fixture
def live() -> Iterator[Live]:
    started = Live(engine())
    yield started
    started.close()


def words(tokens: list[int]) -> str:
    return "".join(f"{token} " for token in tokens)


def body(**more: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": PROMPT, "max_tokens": 8, "temperature": 0, **more}


def stream(live: Live, path: str, asked: dict[str, Any]) -> list[Any]:
    with closing(live.connect()) as connection:
        send(connection, path, {**asked, "stream": True})
        response = connection.getresponse()
        assert response.status == 200
        assert response.headers["Content-Type"].startswith("text/event-stream")
        return events(response)


def test_a_completion_is_what_the_model_says_with_its_usage(live: Live) -> None:
    status, answer = live.ask(COMPLETIONS, body())
    assert status == 200
    assert answer["object"] == "text_completion"
    assert answer["model"] == MODEL
    expected = words(greedy(live.engine.model, tuple(PROMPT), 8))
    assert answer["choices"] == [{"index": 0, "text": expected, "logprobs": None, "finish_reason": "length"}]
    assert answer["usage"] == {"prompt_tokens": 20, "completion_tokens": 8, "total_tokens": 28}


@pytest.mark.parametrize("asked", [words(PROMPT), [words(PROMPT)], [PROMPT]])
def test_a_prompt_may_be_text_or_tokens_alone_or_in_a_list_of_one(live: Live, asked: Any) -> None:
    assert live.ask(COMPLETIONS, body(prompt=asked))[1]["choices"] == live.ask(COMPLETIONS, body())[1]["choices"]


def test_a_stream_brings_the_same_text_piece_by_piece_and_usage_when_asked(live: Live) -> None:
    whole = live.ask(COMPLETIONS, body())[1]
    chunks = stream(live, COMPLETIONS, body(stream_options={"include_usage": True}))
    assert [len(chunk["choices"]) for chunk in chunks] == [1] * 8 + [0]
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks[:-1]) == whole["choices"][0]["text"]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]] == [None] * 7 + ["length"]
    assert chunks[-1]["usage"] == whole["usage"]
    assert all("usage" not in chunk for chunk in stream(live, COMPLETIONS, body()))
    assert len({chunk["id"] for chunk in chunks}) == 1


def test_a_chat_answers_as_the_assistant(live: Live) -> None:
    asked = {"messages": [{"role": "user", "content": words(PROMPT)}], "max_completion_tokens": 5, "temperature": 0}
    said = words(greedy(live.engine.model, tuple(PROMPT), 5))
    answer = live.ask(CHAT, asked)[1]
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"]["content"] == said
    chunks = stream(live, CHAT, asked)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(delta.get("content", "") for delta in deltas) == said
    assert (deltas[-1], chunks[-1]["choices"][0]["finish_reason"]) == ({}, "length")


def test_a_stop_string_ends_the_answer_and_is_left_out(live: Live) -> None:
    tokens = greedy(live.engine.model, tuple(PROMPT), 8)
    stop = f" {tokens[4]} "
    before = words(tokens)[: words(tokens).index(stop)]
    answer = live.ask(COMPLETIONS, body(stop=[stop, "never"]))[1]
    assert answer["choices"][0]["text"] == before
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] == len(before.split()) + 1
    chunks = stream(live, COMPLETIONS, body(stop=stop))
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == before
    live.quiet()
    assert live.engine.cache.blocks.live == len(live.engine.scheduler.prefix)


def test_a_seed_repeats_itself_and_chance_does_not(live: Live) -> None:
    def said(**more: Any) -> str:
        text: str = live.ask(COMPLETIONS, body(temperature=1.5, max_tokens=16, **more))[1]["choices"][0]["text"]
        return text

    assert said(seed=3) == said(seed=3)
    assert len({said() for _ in range(3)}) > 1


@pytest.mark.parametrize(
    ("change", "param", "said"),
    [
        ({"n": 2}, "n", "n is not supported"),
        ({"echo": True}, "echo", "echo is not supported"),
        ({"logprobs": 3}, "logprobs", "logprobs is not supported"),
        ({"max_tokens": 0}, "max_tokens", "whole number of at least 1"),
        ({"max_tokens": True}, "max_tokens", "whole number"),
        ({"temperature": 3}, "temperature", "a number from 0 to 2"),
        ({"temperature": "hot"}, "temperature", "a number"),
        ({"top_p": -1}, "top_p", "a number from 0 to 1"),
        ({"stop": ["a", ""]}, "stop", "none empty"),
        ({"stop": 5}, "stop", "a string"),
        ({"stream": "yes"}, "stream", "true or false"),
        ({"stream_options": 1}, "stream_options", "an object"),
        ({"prompt": ""}, "prompt", "empty"),
        ({"prompt": None}, "prompt", "one string or one list"),
        ({"prompt": ["1", "2"]}, "prompt", "one string or one list"),
        ({"prompt": [97]}, "prompt", "tokens from 0 to 96"),
        ({"prompt": "words"}, "prompt", "no text vocabulary"),
    ],
)
def test_what_is_wrong_is_named_in_openais_form(live: Live, change: dict[str, Any], param: str, said: str) -> None:
    status, answer = live.ask(COMPLETIONS, body(**change))
    error = answer["error"]
    assert (status, error["type"], error["param"]) == (400, "invalid_request_error", param)
    assert said in error["message"]


@pytest.mark.parametrize(
    "messages",
    [None, [], ["hello"], [{"role": "tool", "content": "1"}], [{"role": "user", "content": [{"type": "image_url"}]}]],
)
def test_a_conversation_that_is_none_is_refused(live: Live, messages: Any) -> None:
    status, answer = live.ask(CHAT, {"messages": messages})
    assert (status, answer["error"]["param"]) == (400, "messages")


@pytest.mark.parametrize("streamed", [False, True])
def test_a_request_that_is_too_long_is_refused_with_the_numbers(live: Live, streamed: bool) -> None:
    for asked in (body(max_tokens=LONGEST), body(prompt=[1] * LONGEST)):
        status, answer = live.ask(COMPLETIONS, {**asked, "stream": streamed})
        assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")
        assert str(LONGEST) in answer["error"]["message"]


def test_unknown_models_paths_and_bodies_are_refused(live: Live) -> None:
    status, answer = live.ask(COMPLETIONS, body(model="gpt"))
    assert (status, answer["error"]["code"], answer["error"]["param"]) == (404, "model_not_found", "model")
    assert live.ask("/v1/embeddings", {})[0] == 404
    assert live.ask(COMPLETIONS)[0] == 404
    for broken in (b"{", b"[]", b"\xff", b"[" * 100000):
        assert live.ask(COMPLETIONS, broken)[1]["error"]["code"] == "invalid_body"


def test_the_model_is_listed_and_health_ends_with_the_engine(live: Live) -> None:
    listed = live.ask("/v1/models")[1]["data"]
    assert [(model["id"], model["max_model_len"]) for model in listed] == [(MODEL, LONGEST)]
    assert live.ask("/health")[0] == 200
    live.service.stopping.set()
    assert live.ask("/health")[0] == 503


def test_a_connection_serves_many_requests(live: Live) -> None:
    with closing(live.connect()) as connection:
        for streamed in (False, True, False):
            send(connection, COMPLETIONS, body(stream=streamed))
            response = connection.getresponse()
            assert response.status == 200
            response.read()
        send(connection, COMPLETIONS, body(n=2))
        response = connection.getresponse()
        assert response.status == 400
        response.read()
        send(connection, "/health")
        assert connection.getresponse().status == 200


@pytest.mark.parametrize("streamed", [False, True])
def test_a_client_that_leaves_frees_its_blocks(live: Live, streamed: bool) -> None:
    live.paused.set()
    connection = live.connect()
    send(connection, COMPLETIONS, body(max_tokens=200, stream=streamed))
    while not live.desk.open:
        live.resting.wait(0.01)
    live.paused.clear()
    connection.close()
    while live.desk.open:
        live.resting.wait(0.01)
    live.quiet()
    assert not live.engine.scheduler.running
    assert live.engine.cache.blocks.live == len(live.engine.scheduler.prefix)
    live.engine.cache.check()


def test_whoever_waits_when_the_engine_ends_is_told(live: Live) -> None:
    live.paused.set()
    with closing(live.connect()) as connection:
        send(connection, COMPLETIONS, body())
        while not live.desk.open:
            live.resting.wait(0.01)
        live.desk.close()
        assert connection.getresponse().status == 503


def test_many_clients_stream_at_once(live: Live) -> None:
    expected = [words(greedy(live.engine.model, prompt(20, seed=seed), 12)) for seed in range(32)]

    def one(seed: int) -> str:
        chunks = stream(live, COMPLETIONS, body(prompt=list(prompt(20, seed=seed)), max_tokens=12))
        return "".join(chunk["choices"][0]["text"] for chunk in chunks)

    with ThreadPoolExecutor(32) as pool:
        assert list(pool.map(one, range(32))) == expected
    live.quiet()
    live.engine.cache.check()


def test_nothing_a_client_says_is_logged(live: Live, capfd: pytest.CaptureFixture[str]) -> None:
    live.ask(COMPLETIONS, body(prompt="a secret"))
    live.ask(COMPLETIONS + "?key=secret", body(model="secret"))
    live.ask(CHAT, b"secret")
    said = capfd.readouterr()
    assert "secret" not in said.out + said.err


def test_a_request_beyond_the_hot_part_of_a_split_pool_is_refused_in_the_clients_form() -> None:
    live = Live(engine(pool="split", split_hot="0.5", pool_blocks=16))
    try:
        status, answer = live.ask("/v1/completions", {"prompt": list(range(90)) * 2, "max_tokens": 8})
    finally:
        live.close()
    assert status == 400
    assert answer["error"]["code"] == "context_length_exceeded"
    assert "expected 128 at most" in answer["error"]["message"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:8000", "Origin": "http://evil.example:8000"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "[::1"},
    ],
)
@pytest.mark.parametrize("path", ["/metrics", "/health", "/v1/models", COMPLETIONS, "/control"])
def test_a_request_of_a_page_or_a_name_from_elsewhere_is_refused_on_every_route(
    live: Live, headers: dict[str, str], path: str
) -> None:
    with closing(live.connect()) as connection:
        posted = path in (COMPLETIONS, "/control")
        data = json.dumps(body()).encode() if posted else None
        connection.request("POST" if posted else "GET", path, data, {"Content-Type": "application/json", **headers})
        response = connection.getresponse()
        assert response.status == 403
        response.read()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1", "[::1]:80", "192.0.2.7:8000"])
def test_an_address_or_a_name_of_this_machine_is_answered(live: Live, host: str) -> None:
    with closing(live.connect()) as connection:
        connection.request("GET", "/health", headers={"Host": host, "Origin": f"http://{host}"})
        assert connection.getresponse().status == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_what_a_page_may_send_unasked_is_not_taken_for_json(live: Live, kind: str) -> None:
    with closing(live.connect()) as connection:
        connection.request("POST", COMPLETIONS, json.dumps(body()).encode(), {"Content-Type": kind})
        response = connection.getresponse()
        assert response.status == 415
        response.read()


@pytest.mark.parametrize(
    "wrong",
    [
        {"prompt": [True, False]},
        {"prompt": [1.0]},
        {"prompt": [10**30]},
        {"prompt": "\ud800"},
        {"seed": 2**70},
        {"max_tokens": 10**400},
        {"temperature": 10**400},
        {"stop": ["x" * 5000]},
        {"stream_options": [1]},
        {"model": {"a": 1}},
    ],
)
def test_a_field_that_no_engine_could_use_is_refused_before_the_loop(live: Live, wrong: dict[str, Any]) -> None:
    status, answer = live.ask(COMPLETIONS, body(**wrong))
    assert status in (400, 404)
    assert answer["error"]["message"]
    assert live.ask(COMPLETIONS, body())[0] == 200


@pytest.mark.parametrize("role", [["user"], {"a": 1}, None, 1])
def test_a_role_of_any_type_is_refused(live: Live, role: Any) -> None:
    assert live.ask("/v1/chat/completions", {"messages": [{"role": role, "content": "1 2"}]})[0] == 400
