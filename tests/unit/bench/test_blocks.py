"""Block sizes are judged by what they waste and what their bookkeeping costs, for the lengths that are there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvscope.bench.blocks import WASTE_LIMIT, Costs, balance, paged, paged_with_tails, recommended
from kvscope.cli import run

PLAIN = Costs(entry_bytes=100.0, block_bytes=0.0)


def test_waste_is_what_the_last_block_does_not_fill() -> None:
    found = paged([17, 32], 16, PLAIN)
    assert found.allocated == 4 * 16 * 100
    assert found.waste_share == pytest.approx(15 / 64)
    assert found.table_share == 0


def test_compression_makes_the_same_block_waste_more() -> None:
    shares = [paged([200], 64, Costs(100.0, 0.0, kept)).waste_share for kept in (1.0, 0.25)]
    assert shares == [pytest.approx(56 / 256), pytest.approx(14 / 64)]
    lengths = range(100, 2000, 7)
    assert paged(lengths, 64, Costs(100.0, 0.0, 0.25)).waste_share > 3 * paged(lengths, 64, PLAIN).waste_share


def test_small_blocks_pay_for_bookkeeping_and_large_ones_for_space_so_there_is_a_least() -> None:
    costs = Costs(100.0, 50.0)
    lengths = list(range(100, 2000, 7))
    found = [paged(lengths, 1 << power, costs) for power in range(10)]
    least = min(found, key=lambda one: one.total_share)
    assert 0 < found.index(least) < 9
    assert least.size / 2 <= balance(lengths, costs) <= least.size * 2
    assert recommended(found).size >= least.size


def test_a_size_above_the_waste_limit_is_not_recommended() -> None:
    found = [paged([40], size, Costs(100.0, 4000.0)) for size in (1, 8, 64)]
    assert found[2].waste_share > WASTE_LIMIT
    assert recommended(found).size == 8


def test_a_variable_last_block_wastes_an_eighth_and_costs_more_entries() -> None:
    costs = Costs(100.0, 10.0)
    whole, cut = paged([65], 64, costs), paged_with_tails([65], 64, costs)
    assert (whole.allocated, cut.allocated) == (128 * 100, 72 * 100)
    assert (whole.table, cut.table) == (20, 20)
    assert paged_with_tails([64 + 56], 64, costs).table == 40


def test_the_default_mix_warns_only_where_blocks_are_too_large(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "blocks", "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    shares = {one["name"]: one["value"] for one in report["quantities"]}
    assert report["warns"] == []
    assert shares["waste_share_b16"] < 0.01 < shares["waste_share_b128"]
    assert shares["recommended_block_tokens"] == 64
    assert run(["bench", "blocks", "--current", "512", "--format", "json"]) == 0
    assert "above 15%" in json.loads(capsys.readouterr().out)["warns"][0]


def test_the_page_for_a_colleague_needs_no_network(tmp_path: Path) -> None:
    assert run(["bench", "blocks", "-o", str(tmp_path / "blocks.html")]) == 0
    page = (tmp_path / "blocks.html").read_text()
    assert "<svg" in page
    assert "http" not in page
    assert "<script" not in page


def test_two_results_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, kept in (("a", "1"), ("b", "0.25")):
        assert run(["bench", "blocks", "--kept", kept, "-o", str(tmp_path / f"{name}.json")]) == 0
    capsys.readouterr()
    assert run(["compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 0
    assert "waste_share_b512" in capsys.readouterr().out


def test_a_models_config_gives_the_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    config = "samples/configs/deepseek-v4-flash.json"
    assert run(["bench", "blocks", "--config", config, "--mix", "100:1K", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["tags"]["model"] == "deepseek_v4"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["blocks", "--kept", "0"], "more than 0"),
        (["blocks", "--mix", "50:100"], "the shares add up to 50%"),
        (["blocks", "--mix", "many"], "expected PERCENT:LOW-HIGH"),
        (["blocks", "--trace", "nothing.csv"], "nothing.csv"),
        (["blocks", "-o", "result.pdf"], "ends in .json or .html"),
        (["blocks", "--format", "yaml"], "expected text or json"),
        (["block"], "invalid choice"),
        ([], "required: NAME"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", *words]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1
