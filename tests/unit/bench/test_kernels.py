"""Two kernels are held against each other on the same requests, and too small a gain is said."""

from __future__ import annotations

import argparse
import json

import pytest

from kvscope.bench.client.levels import Level, LevelRun
from kvscope.bench.client.measures import Measures, measures
from kvscope.bench.client.server import Outcome
from kvscope.bench.kernels import plan_of, result_of
from kvscope.cli import run
from kvscope.errors import NotEnoughData

OPTIONS = argparse.Namespace(clients=2, requests=6, output_tokens=8, seed=0, set=[])


def passed(gap: float, tokens: int = 8) -> Measures:
    outcomes = tuple(
        Outcome(float(i), 100, tokens, 0.0, tuple(i + 0.5 + gap * n for n in range(tokens)), 100, tokens)
        for i in range(6)
    )
    return measures([LevelRun(Level("closed", 2.0), 0, (), outcomes, 0.0)], {})


def test_a_gain_of_a_fifth_at_the_longest_context_is_enough() -> None:
    found = result_of({(2048, "generic"): passed(0.04), (2048, "block"): passed(0.02)}, OPTIONS)
    assert found.warns == ()
    assert found.says == ("At 2048 tokens a decode step is 100% faster with block kernels.",)


def test_a_smaller_one_is_a_warning_even_when_short_contexts_gain() -> None:
    found = result_of(
        {
            (2048, "generic"): passed(0.04),
            (2048, "block"): passed(0.02),
            (65536, "generic"): passed(0.055),
            (65536, "block"): passed(0.05),
        },
        OPTIONS,
    )
    assert "At 65536 tokens the block kernels make decode 10% faster, below 20%" in found.warns[0]


def test_answers_of_one_token_say_nothing_about_decode() -> None:
    with pytest.raises(NotEnoughData, match="expected more output tokens"):
        result_of({(2048, "generic"): passed(0.0, 1), (2048, "block"): passed(0.0, 1)}, OPTIONS)


def test_both_kernels_get_the_same_requests() -> None:
    plan = plan_of(4096, OPTIONS)
    assert plan.pairs(plan.levels[0]) == [(4096, 8)] * 8


def test_a_mistake_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "kernels", "--requests", "1"]) == 2
    assert "expected at least 2" in capsys.readouterr().err


def test_a_device_without_a_table_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "kernels", "--device", "gpu"]) == 2
    assert "expected cpu" in capsys.readouterr().err


def test_kernels_alone_are_rows_with_their_bytes_and_their_share_of_a_copy(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    small = ["--device", "cpu", "--lengths", "256", "--batches", "1", "--quick", "--format", "json"]
    assert run(["bench", "kernels", *small]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = {(row["path"], row["form"]): row for row in found["rows"]}
    assert {"dense", "generic", "block", "select", "select+block"} <= {path for path, _ in rows}
    assert rows["dense", "hot"]["ms"] == min(rows["sdpa", "hot"]["ms"], rows["paged", "hot"]["ms"])
    for row in found["rows"]:
        assert (row["batch"], row["context"]) == (1, 256)
        assert row["kept"] == (1.0 if row["path"] in ("dense", "sdpa", "paged") else 0.25)
        assert row["share"] == pytest.approx(row["gb_per_s"] / found["copy_gb_per_s"])
    block, dense = rows["block", "hot"], rows["dense", "hot"]
    assert block["gb_per_s"] * block["ms"] == pytest.approx(0.25 * dense["gb_per_s"] * dense["ms"])
