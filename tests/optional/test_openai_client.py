"""OpenAI's own client, unchanged, against a served engine: completions, chats, streams, refusals, many at once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kvscope.sources.builtin import BuiltinEngine

openai = pytest.importorskip("openai")
pytest.importorskip("torch")
pytest.importorskip("tokenizers")

MODEL = "SmolLM2-135M-Instruct"
ASKED = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    from engine.weights.smollm2 import path

    try:
        path()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    engine = BuiltinEngine.start({"max_running": "32"}, ("--model", "smollm2", "--threads", "1", "--pool-mib", "512"))
    with openai.OpenAI(base_url=f"http://127.0.0.1:{engine.port}/v1", api_key="none", max_retries=0) as made:
        yield made
    engine.stop(keep_recorder=False)


def test_it_lists_the_model(client: Any) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]


def test_it_chats(client: Any) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=ASKED, temperature=0, max_tokens=24)
    assert "Paris" in answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_a_streamed_chat_says_the_same_and_tells_its_usage(client: Any) -> None:
    whole = client.chat.completions.create(model=MODEL, messages=ASKED, temperature=0, max_tokens=24)
    chunks = list(
        client.chat.completions.create(
            model=MODEL,
            messages=ASKED,
            temperature=0,
            max_tokens=24,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert said == whole.choices[0].message.content
    assert chunks[-1].usage == whole.usage


def test_a_completion_stops_where_it_is_told_and_repeats_with_its_seed(client: Any) -> None:
    counted = client.completions.create(model=MODEL, prompt="1, 2, 3,", temperature=0, stop=" 6", max_tokens=16)
    assert counted.choices[0].text == " 4, 5,"
    drawn = [
        client.completions.create(model=MODEL, prompt="Once", temperature=0.9, top_p=0.9, seed=4, max_tokens=12)
        for _ in range(2)
    ]
    assert drawn[0].choices[0].text == drawn[1].choices[0].text


def test_refusals_are_its_own_errors(client: Any) -> None:
    with pytest.raises(openai.BadRequestError, match="n is not supported"):
        client.completions.create(model=MODEL, prompt="x", n=2)
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(model=MODEL, prompt="x", max_tokens=100_000)
    assert refused.value.code == "context_length_exceeded"
    with pytest.raises(openai.NotFoundError, match="not served here"):
        client.chat.completions.create(model="gpt-x", messages=ASKED)


def test_thirty_two_stream_at_once(client: Any) -> None:
    def one(number: int) -> int:
        stream = client.completions.create(
            model=MODEL, prompt=f"Count from {number}:", temperature=0, max_tokens=8, stream=True
        )
        return sum(len(chunk.choices) for chunk in stream)

    with ThreadPoolExecutor(32) as pool:
        assert all(pool.map(one, range(32)))


def test_a_stream_that_is_closed_early_leaves_room_for_the_next(client: Any) -> None:
    with client.completions.create(model=MODEL, prompt="Once", max_tokens=400, stream=True) as stream:
        next(iter(stream))
    assert client.completions.create(model=MODEL, prompt="x", max_tokens=1).usage.completion_tokens == 1
