"""Lengths keep their shares exactly, and traces are read under the names their writers use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvscope.bench.workload import lengths
from kvscope.bench.workload.trace import Seen, read_trace
from kvscope.errors import UsageError


def test_a_draw_has_the_shares_of_the_mix_whatever_the_seed() -> None:
    for seed in range(5):
        drawn = lengths.draw(lengths.DEFAULT, 50, seed)
        assert [
            sum(low <= one < high for one in drawn) for low, high in ((0, 2048), (2048, 16384), (16384, 65536))
        ] == [
            35,
            10,
            5,
        ]
    assert lengths.draw(lengths.DEFAULT, 50, 1) == lengths.draw(lengths.DEFAULT, 50, 1)
    assert lengths.draw(lengths.DEFAULT, 50, 1) != lengths.draw(lengths.DEFAULT, 50, 2)


def test_a_mix_shrinks_to_a_small_model_and_keeps_its_shape() -> None:
    small = lengths.scaled(lengths.DEFAULT, 4096)
    assert [band.share for band in small] == [0.7, 0.2, 0.1]
    assert small[-1].high == 4096
    assert small[0].high == small[1].low == 128


def test_a_mix_is_written_as_shares_and_bands() -> None:
    assert [(band.share, band.low, band.high) for band in lengths.parse("70:128-2K,30:4K")] == [
        (0.7, 128, 2048),
        (0.3, 4096, 4097),
    ]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ('{"timestamp": 3000, "input_length": 7, "output_length": 2}\n{"timestamp": 3500, "input_length": 8}\n', 0.5),
        (
            "TIMESTAMP,ContextTokens,GeneratedTokens\n"
            "2023-11-16 18:17:03.9799600,7,2\n2023-11-16 18:17:04.4799600,8,0\n",
            0.5,
        ),
        ("Timestamp,Model,Request tokens,Response tokens\n5,x,7,2\n6,x,8,0\n", 1.0),
    ],
)
def test_public_traces_are_read(text: str, first: float, tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text(text)
    found = read_trace(path)
    assert [(one.tokens_in, one.tokens_out) for one in found] == [(7, 2), (8, 0)]
    assert found[1].arrival_s == pytest.approx(first, abs=1e-3)


def test_a_log_of_answers_is_read_and_a_broken_line_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    line = json.dumps({"usage": {"prompt_tokens": 7, "completion_tokens": 3}})
    path.write_text(f"{line}\n{{broken\n{line}\n")
    assert read_trace(path) == [Seen(7, 3), Seen(7, 3)]


def test_a_trace_without_lengths_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(UsageError, match="no line has a prompt length"):
        read_trace(path)
