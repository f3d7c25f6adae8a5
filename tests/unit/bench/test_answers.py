"""Answers before and after: three verdicts from four answers a prompt, with controls; and nothing readable is kept."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from kvscope.bench.answers import Pair, agreement, compare, distance, diverges
from kvscope.bench.client.replies import Prompt, Reply, read_prompts, reply_of
from kvscope.cli import run
from kvscope.errors import UsageError

PROMPT = Prompt({"prompt": "the secret question"})
LENGTH = 40


def answer(words: list[str]) -> Reply:
    return reply_of({"choices": [{"text": " ".join(words), "finish_reason": "length"}]}, PROMPT)


def side(count: int, noise: float, changed: float, rng: random.Random) -> Pair:
    """Two rounds of ``count`` answers: each leaves the common text with a chance, at any word."""

    def one(prompt: int) -> Reply:
        words = [f"w{prompt}-{n}" for n in range(LENGTH)]
        for chance, mark in ((changed, "changed"), (noise, f"noise{rng.random()}")):
            if rng.random() < chance:
                at = rng.randrange(LENGTH)
                words[at:] = [mark] * (LENGTH - at)
        return answer(words)

    return [one(prompt) for prompt in range(count)], [one(prompt) for prompt in range(count)]


def test_answers_that_never_differ_are_equal_once_there_are_enough_of_them() -> None:
    rng = random.Random(1)
    before, now = side(100, 0.0, 0.0, rng), side(100, 0.0, 0.0, rng)
    assert compare(before, now, 0.05).verdict == "equal"
    few = compare(side(20, 0.0, 0.0, rng), side(20, 0.0, 0.0, rng), 0.05)
    assert few.verdict == "cannot tell"
    assert "60 prompts" in few.says


def test_a_change_of_every_third_answer_is_seen_through_noise_and_noise_alone_is_no_change() -> None:
    seen, alarms = 0, 0
    for seed in range(10):
        rng = random.Random(seed)
        before = side(120, 0.3, 0.0, rng)
        seen += compare(before, side(120, 0.3, 0.7, rng), 0.05).verdict == "different"
        alarms += compare(before, side(120, 0.3, 0.0, rng), 0.05).verdict == "different"
    assert seen >= 9
    assert alarms == 0


def test_a_noisy_server_and_few_prompts_cannot_be_told() -> None:
    rng = random.Random(3)
    found = compare(side(15, 0.8, 0.0, rng), side(15, 0.8, 0.0, rng), 0.05)
    assert found.verdict == "cannot tell"
    assert found.own < 0.8


def test_the_first_difference_and_the_share_before_it() -> None:
    a, b = answer(["a", "b", "c", "d"]), answer(["a", "b", "x", "d"])
    assert diverges(a, b) == 2
    assert agreement(a, b) == pytest.approx(2 / 5)
    assert agreement(a, a) == 1.0
    shorter = answer(["a", "b"])
    assert diverges(a, shorter) == 2
    assert agreement(a, shorter) < 1.0


def test_log_probabilities_are_compared_up_to_the_first_difference() -> None:
    def told(tokens: list[str], values: list[float]) -> Reply:
        logprobs = {"content": [{"token": t, "logprob": v} for t, v in zip(tokens, values, strict=True)]}
        choice = {"message": {"content": "".join(tokens)}, "logprobs": logprobs, "finish_reason": "stop"}
        return reply_of({"choices": [choice]}, PROMPT)

    a, b = told(["a", "b", "c"], [-0.1, -0.2, -5.0]), told(["a", "b", "x"], [-0.2, -0.4, -0.1])
    assert distance(a, b) == pytest.approx(0.15)
    assert distance(a, answer(["a"])) is None


def test_tokens_that_are_not_the_text_give_way_to_words() -> None:
    choice = {"text": "héllo you", "logprobs": {"tokens": ["h\ufffd", "llo", " you"], "token_logprobs": [0, 0, 0]}}
    assert len(reply_of({"choices": [choice]}, PROMPT).digests) == 3
    assert reply_of({"choices": [choice]}, PROMPT).logprobs == ()


def test_token_ids_are_the_tokens_where_a_server_tells_them() -> None:
    choice = {"text": "", "token_ids": [5, 6, 7], "logprobs": {"tokens": ["", "", ""], "token_logprobs": [-1, -2, -3]}}
    other = {"text": "", "token_ids": [5, 6, 8], "logprobs": None}
    a, b = (reply_of({"choices": [one]}, PROMPT) for one in (choice, other))
    assert (len(a.digests), a.logprobs) == (4, (-1.0, -2.0, -3.0))
    assert diverges(a, b) == 2


def test_prompts_are_text_or_objects_and_a_wrong_one_is_named_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    asked = {"messages": [{"role": "user", "content": "x"}], "response_format": {"type": "json_object"}}
    path.write_text(f'plain text\n{{"prompt": "p"}}\n\n{{"prompt": [1, 2]}}\n{json.dumps(asked)}\n')
    assert [one.as_json for one in read_prompts(path)] == [False, False, False, True]
    for wrong in ('{"question": "x"}', '{"prompt": 1}', '{"prompt": "x", "messages": []}', "{"):
        path.write_text(f"fine\n{wrong}\n")
        with pytest.raises(UsageError, match=r"prompts\.jsonl"):
            read_prompts(path)
    with pytest.raises(UsageError):
        read_prompts(tmp_path / "none")


class Model(BaseHTTPRequestHandler):
    """An OpenAI-compatible server that answers with ``say(prompt)``; its probabilities are told where asked for."""

    say: Callable[[str], str]
    refuses: tuple[str, ...] = ()
    """Options with which a question is refused."""

    def do_GET(self) -> None:
        self._send({"data": [{"id": "m"}]})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if any(name in asked for name in self.refuses):
            self.send_error(400)
            return
        text = type(self).say(asked.get("prompt") or asked["messages"][0]["content"])
        tokens = [f"{word} " for word in text.split(" ")]
        rows = [{"token": token, "logprob": -0.5} for token in tokens]
        if "messages" in asked:
            choice: dict[str, Any] = {"message": {"content": text}, "logprobs": {"content": rows}}
        else:
            choice = {"text": text, "logprobs": {"tokens": tokens, "token_logprobs": [-0.5] * len(tokens)}}
        self._send({"choices": [choice | {"finish_reason": "stop"}]})

    def _send(self, body: Any) -> None:
        raw = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def model() -> Iterator[tuple[str, type[Model]]]:
    handler = type("Handler", (Model,), {"say": staticmethod(lambda prompt: f"the answer to {prompt}")})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.server_port}", handler
        server.shutdown()
        thread.join()


def test_before_and_after_a_change_by_the_command_and_no_text_is_kept(
    model: tuple[str, type[Model]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, handler = model
    asked, before, after = tmp_path / "asked.jsonl", tmp_path / "before.json", tmp_path / "after.json"
    rows = [{"messages": [{"role": "user", "content": f"secret {n}"}], "response_format": {}} for n in range(5)]
    asked.write_text("\n".join([f"secret question {n}" for n in range(60)] + [json.dumps(row) for row in rows]))
    common = ["bench", "answers", url, "--prompts", str(asked)]
    assert run([*common, "-o", str(before)]) == 0
    assert "65 of 65 answers are the same" in capsys.readouterr().out
    assert run([*common, "--against", str(before)]) == 0
    assert "equal: " in capsys.readouterr().out
    handler.say = staticmethod(lambda prompt: f"the answer is {prompt}")  # type: ignore[assignment]
    assert run([*common, "--against", str(before), "-o", str(after)]) == 1
    shown = capsys.readouterr().out
    assert "different: " in shown
    told = {one["name"]: one["value"] for one in json.loads(after.read_text())["quantities"]}
    assert told["logprob_distance"] == 0.0
    assert told["agreement_own"] == 1.0 > told["agreement_across"]
    for text in (before.read_text(), after.read_text(), shown):
        assert "secret" not in text
        assert "the answer" not in text
    asked.write_text("another prompt\n")
    assert run([*common, "--against", str(before)]) == 2
    assert "other prompts" in capsys.readouterr().err


def test_two_servers_are_asked_in_turn_and_json_is_held_to_be_json(
    model: tuple[str, type[Model]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, handler = model
    asked = tmp_path / "asked.jsonl"
    row = {"prompt": "as JSON", "response_format": {"type": "json_object"}}
    asked.write_text("\n".join([json.dumps(row)] * 3))
    handler.say = staticmethod(lambda _: '{"a": 1}')  # type: ignore[assignment]
    code = run(["bench", "answers", url, "--prompts", str(asked), "--against", url, "--format", "json"])
    told = {one["name"]: one["value"] for one in json.loads(capsys.readouterr().out)["quantities"]}
    assert (told["json_valid_before"], told["json_valid"]) == (1.0, 1.0)
    assert code == 4


@pytest.mark.parametrize("refuses", [("logprobs",), ("return_token_ids",), ("logprobs", "return_token_ids")])
def test_a_server_that_tells_neither_probabilities_nor_ids_is_asked_without(
    model: tuple[str, type[Model]], tmp_path: Path, refuses: tuple[str, ...]
) -> None:
    url, handler = model
    handler.refuses = refuses
    (tmp_path / "asked").write_text("x\n")
    assert run(["bench", "answers", url, "--prompts", str(tmp_path / "asked")]) == 0
    handler.refuses = ("prompt",)
    assert run(["bench", "answers", url, "--prompts", str(tmp_path / "asked")]) == 3


def test_a_server_that_is_none_is_told_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "asked").write_text("x\n")
    assert run(["bench", "answers", "127.0.0.1:1", "--prompts", str(tmp_path / "asked")]) == 3
    assert "OpenAI-compatible" in capsys.readouterr().err
