"""Text is sent as soon as it cannot change any more: whole characters, and no beginning of a stop string."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from engine.serving.text import TextStream


class Bytes:
    """Each token is a byte."""

    stop_ids: frozenset[int] = frozenset()

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(ids).decode(errors="replace")

    def chat(self, messages: object) -> list[int]:
        raise NotImplementedError


def pieces(text: str | bytes, *stops: str) -> list[str]:
    stream, said = TextStream(Bytes(), stops), []
    for token in text.encode() if isinstance(text, str) else text:
        said.append(stream.add(token))
        if stream.stopped:
            return said
    return [*said, stream.finish()]


def test_a_character_is_sent_when_its_last_byte_is_there() -> None:
    assert pieces("aé漢🙂") == ["a", "", "é", "", "", "漢", "", "", "", "🙂", ""]


def test_bytes_that_are_no_character_are_not_held_for_ever() -> None:
    said = pieces(b"\xf0\xf0\xf0\xf0\xf0ab")
    assert "".join(said).endswith("ab")
    assert "".join(said[:4])


def test_an_unfinished_character_comes_at_the_end() -> None:
    assert pieces("é".encode()[:1])[-1] == "\ufffd"


@pytest.mark.parametrize(
    ("text", "stops", "sent"),
    [
        ("hello END more", ("END",), "hello "),
        ("hello EN more", ("END",), "hello EN more"),
        ("aab", ("ab",), "a"),
        ("x\n\ny", ("\n\n", "y"), "x"),
        ("abc", ("c", "bc"), "a"),
        ("ends in EN", ("END",), "ends in EN"),
        ("", ("END",), ""),
    ],
)
def test_a_stop_string_and_what_follows_is_left_out(text: str, stops: tuple[str, ...], sent: str) -> None:
    said = pieces(text, *stops)
    assert "".join(said) == sent
    assert not any(stop in "".join(said) for stop in stops)
