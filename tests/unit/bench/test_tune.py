"""Tuning proposes what passes the bar, tells its price, and goes on where it was interrupted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvscope.bench import tune as tuning
from kvscope.bench._child import Log
from kvscope.bench.tune import Grid, Setting, Tried, grid_of, tune
from kvscope.cli import run
from kvscope.errors import UsageError

GRID = Grid((32,), {"kept_share": ("0.125", "0.25")})


def cell(share: str, size: float, token_s: float, right: float = 1000.0) -> Tried:
    return Tried(Setting(32, (("kept_share", share),) if share else ()), size, token_s, right, 1000.0)


FULL, QUICK, SMALL, WRONG = (
    cell("", 4000, 0.02),
    cell("0.5", 2000, 0.01),
    cell("0.25", 1000, 0.018),
    cell("0.1", 500, 0.005, 900),
)


def test_what_loses_more_than_the_bar_is_never_proposed() -> None:
    for aim in ("balanced", "memory", "speed"):
        assert tune([FULL, QUICK, SMALL, WRONG], 0.01, aim).chosen is not WRONG


def test_the_aim_decides_among_what_passes() -> None:
    cells = [FULL, QUICK, SMALL, WRONG]
    assert tune(cells, 0.01, "memory").chosen is SMALL
    assert tune(cells, 0.01, "speed").chosen is QUICK
    assert tune(cells, 0.2, "balanced").chosen is WRONG


def test_the_front_is_what_nothing_beats_at_once() -> None:
    beaten = cell("0.3", 2500, 0.012)
    assert beaten not in tune([FULL, QUICK, SMALL, WRONG, beaten], 0.01, "balanced").front
    assert SMALL in tune([FULL, QUICK, SMALL, WRONG, beaten], 0.01, "balanced").front


def test_the_proposal_names_its_price_and_its_doubt() -> None:
    found = tuning.result_of(tune([FULL, QUICK], 0.001, "balanced"), 0.001, {}, {})
    assert "Proposed: --block-tokens 32 --set policy=combined --set kernels=block --set kept_share=0.5" in found.says
    assert found.says[-1].startswith("Its price: 0.50 of the bytes, 2.00 times the speed of decode, +0.00")
    assert "do not tell 0.1 points for sure" in found.warns[0]


def test_where_nothing_passes_the_nearest_is_named() -> None:
    found = tuning.result_of(tune([FULL, WRONG], 0.01, "balanced"), 0.01, {}, {})
    assert found.says[-1].startswith("No setting loses at most 1 points of the right tokens; the nearest is")
    assert found.says[-1].endswith("blocks of 32, kept_share=0.1 with 90.00%.")


def test_the_grid_holds_the_full_cache_of_every_block_size() -> None:
    grid = grid_of(True, "16,32", {"kept_share": "0.5"})
    assert [one.knobs for block in grid.blocks for one in grid.of_block(block)].count(()) == 2
    assert len(grid) == 2 * (1 + 1 * 1 * 2 * 1)
    with pytest.raises(UsageError, match="expected tokens of a block"):
        grid_of(True, "x", {})


def test_an_interrupted_sweep_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(tmp_path / "log", {"steps": 20}, Tried.as_json, Tried.from_json)
    log.add(FULL, FULL.setting.key)
    (tmp_path / "log").write_text((tmp_path / "log").read_text() + '{"block_tokens": 3')
    again = Log(tmp_path / "log", {"steps": 20}, Tried.as_json, Tried.from_json)
    assert again.parts() == [FULL]
    done = {one.setting.key for one in again.parts()}
    asked: list[Setting] = []
    monkeypatch.setattr(tuning, "_of_block", lambda block, left, work, tell: asked.extend(left) or iter(()))
    work = tuning.Work(1024, 20, 1, {})
    assert list(tuning.cells(GRID, work, done, lambda _: None)) == []
    assert [one.knobs for one in asked] == [(("kept_share", "0.125"),), (("kept_share", "0.25"),)]
    with pytest.raises(UsageError, match="was written with steps 20, now it is 30"):
        Log(tmp_path / "log", {"steps": 30})


def test_a_mistake_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--aim", "speeed"], ["--bar", "-1"], ["--steps", "1"], ["-o", "x.txt"]):
        assert run(["tune", *words]) == 2
        assert "expected" in capsys.readouterr().err


def test_a_cell_is_the_same_after_json() -> None:
    assert Tried.from_json(json.loads(json.dumps(SMALL.as_json()))) == SMALL
