"""Saved scrapes play back as they were seen, gaps, restarts and damage included."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from kvscope.errors import SourceError
from kvscope.sources.saved import pages_of
from kvscope.sources.series import SeriesSource


def page(tokens: int) -> str:
    return f"vllm:num_requests_running 1\nvllm:generation_tokens_total {tokens}\n"


def series(path: Path, *lines: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def tokens(samples: list[Any]) -> list[float]:
    return [sample.value for sample in samples if sample.metric == "tokens.generated"]


def test_everything_plays_at_the_first_poll(tmp_path: Path) -> None:
    path = series(tmp_path / "s.jsonl", *({"t": 100.0 + i, "text": page(i)} for i in range(5)))
    poll = SeriesSource(path).poll()
    assert tokens(poll.samples) == [0, 1, 2, 3, 4]
    assert poll.samples[0].t == 100.0
    assert poll.ended


def test_a_speed_paces_it(tmp_path: Path) -> None:
    path = series(tmp_path / "s.jsonl", *({"t": 100.0 + i, "text": page(i)} for i in range(5)))
    now = [0.0]
    source = SeriesSource(path, speed=2.0, clock=lambda: now[0])
    assert tokens(source.poll().samples) == [0]
    now[0] = 1.0
    poll = source.poll()
    assert tokens(poll.samples) == [1, 2]
    assert not poll.ended
    now[0] = 9.0
    assert source.poll().ended
    source.close()


def test_failed_scrapes_are_a_gap_and_a_reset_is_a_mark(tmp_path: Path) -> None:
    gap = {"t": 101.0, "status": None, "error": "refused"}
    path = series(
        tmp_path / "s.jsonl",
        {"t": 99.0, "status": None, "error": "not yet"},
        {"t": 100.0, "status": 200, "text": page(50)},
        gap,
        {**gap, "t": 102.0},
        {"t": 103.0, "text": page(1)},
    )
    poll = SeriesSource(path).poll()
    assert [mark.name for mark in poll.marks] == ["restart-1"]
    assert poll.marks[0].t == 103.0
    told = "\n".join(poll.notices)
    assert "not yet" in told
    assert "refused" in told
    assert "2 scrapes failed" in told


@pytest.mark.parametrize("zipped", [False, True])
def test_a_cut_file_gives_what_is_whole_and_one_notice(tmp_path: Path, zipped: bool) -> None:
    text = "".join(json.dumps({"t": float(i), "text": page(i)}) + "\n" for i in range(400)).encode()
    whole = gzip.compress(text, mtime=0) if zipped else text
    path = tmp_path / "s.jsonl"
    path.write_bytes(whole[: len(whole) // 2])
    poll = SeriesSource(path).poll()
    assert len(tokens(poll.samples)) > 10
    assert len([notice for notice in poll.notices if "what is whole was read" in notice]) == 1
    assert f"{path}, line" in poll.notices[-1]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"t": 1.0, "text": "vllm:num_req', "line 1: cut in the middle"),
        (b'{"t": 1.0}\n', "no scrape with a page"),
        (b'{"text": "vllm:num_requests_running 1"}\n', "line 1: time 't' is None"),
        (b"[1, 2]\n", "line 1: not a JSON object"),
        (b'{"t": 1.0, "text": "node_load1 1"}\n', "node_load1"),
        (gzip.compress(b'{"t": 1.0, "text": "x 1"}\n', mtime=0)[:15], "line 1"),
    ],
)
def test_a_file_with_nothing_whole_in_it_says_where_and_why(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(content)
    with pytest.raises(SourceError, match=said):
        SeriesSource(path)


def test_one_bare_page_is_a_series_of_one(tmp_path: Path) -> None:
    path = tmp_path / "page.prom"
    path.write_text(page(7))
    poll = pages_of(path).poll()
    assert tokens(poll.samples)[-1] == 7
    assert poll.ended
