"""What comes from outside is bounded, printable and of the kind that was asked for, or refused in one line."""

from __future__ import annotations

import gzip
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes import border


@given(st.text(max_size=80))
def test_nothing_in_printable_text_moves_a_cursor_or_turns_a_line_round(said: str) -> None:
    shown = border.printable(said)
    assert len(shown) <= border.SAID_CHARS
    assert all(ord(char) >= 0x20 and not 0x7F <= ord(char) < 0xA0 for char in shown)
    assert not {"\u202e", "\u2066", "\u200f", "\u2028", "\ufeff"} & set(shown)
    shown.encode("utf-8")


def test_printing_twice_changes_nothing_more() -> None:
    once = border.printable("\x1b[31mred\u202e\ud800")
    assert once == "\\x1b[31mred\\u202e\\ud800"
    assert border.printable(once) == once


def test_long_text_is_cut_and_shows_that_it_was() -> None:
    assert border.printable("a" * 1000, 10) == "aaaaaaaaa…"


@pytest.mark.parametrize("value", [True, None, "1", [], math.nan, math.inf, -math.inf, 1e31, 10**400])
def test_what_is_no_number_that_something_measured_has_is_refused(value: Any) -> None:
    with pytest.raises(border.Refused, match="expected a"):
        border.number(value, "here: value")


@pytest.mark.parametrize("value", [1e18, math.inf, math.nan, -1e15, 10**400, "yesterday", None])
def test_a_time_that_no_calendar_has_is_refused(value: Any) -> None:
    with pytest.raises(border.Refused, match=r"here: t .*seconds since the epoch"):
        border.time_s(value, "here: t")


@pytest.mark.parametrize("opener", ["[", '{"a":'])
@pytest.mark.parametrize("depth", [border.MOST_DEPTH + 1, 900, 100_000])
def test_a_document_nested_too_deeply_is_refused_whatever_the_depth(opener: str, depth: int) -> None:
    closer = "]" if opener == "[" else "}"
    with pytest.raises(border.Refused, match=r"nested too deeply|no JSON"):
        border.document(opener * depth + "1" + closer * depth, "here")


def test_a_number_of_many_digits_reads_as_one_that_every_check_refuses() -> None:
    found = border.document('{"a": %s}' % ("9" * 5000), "here")
    with pytest.raises(border.Refused):
        border.number(found["a"], "a")


def test_a_document_within_the_bounds_reads_as_the_standard_library_reads_it() -> None:
    text = json.dumps({"a": [1, 2.5, "x", None, True], "b": {"c": [[1]]}})
    assert border.document(text.encode(), "here") == json.loads(text)


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path, kind in ((tmp_path / "fifo", "a FIFO"), (tmp_path, "a folder"), (Path("/dev/null"), "a device")):
        with pytest.raises(border.Refused, match=kind):
            border.open_file(path)
    (tmp_path / "file").write_bytes(b"12345")
    assert border.read_file(tmp_path / "file") == b"12345"
    with pytest.raises(border.Refused, match="5 bytes, expected at most 4"):
        border.read_file(tmp_path / "file", 4)


def test_a_packed_file_reads_as_its_content_and_a_plain_one_as_it_stands(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"line\n")
    (tmp_path / "packed").write_bytes(gzip.compress(b"li") + gzip.compress(b"ne\n"))
    for name in ("plain", "packed"):
        with border.open_packed(tmp_path / name) as file:
            assert file.read() == b"line\n"


def test_a_name_that_no_file_can_have_is_no_file() -> None:
    assert not border.exists("a" * 5000)
    assert not border.exists("a\0b")


def test_a_memory_of_label_sets_never_outgrows_its_budget() -> None:
    memo: border.Memo[str, int] = border.Memo(10_000)
    for number in range(1000):
        memo.put(str(number), number, 50)
        assert memo.bytes <= 10_000
    assert memo.known["999"] == 999
    assert len(memo.known) <= 40


def test_a_list_that_stands_in_many_places_is_walked_once() -> None:
    shared: list[object] = ["x"]
    for _ in range(40):
        shared = [shared, shared]
    assert border.shallow(shared, "it") is shared
