"""An accuracy table cannot flatter: controls, second turns and equal bytes are in it, and a cut-off run goes on."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvscope.bench import _child, accuracy
from kvscope.bench._accuracy_table import front, make
from kvscope.bench._child import Log
from kvscope.bench.accuracy import axes_of, cells, densities
from kvscope.cli import run
from kvscope.errors import UsageError
from kvscope.result import html, text
from kvscope.result.result import as_json

KEYS = (
    *("task", "context", "density", "policy", "form", "kept", "block", "accuracy", "low", "high", "nll", "margin_p5"),
    *("kl", "bytes", "control", "n", "seed"),
)


def options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    accuracy.configure(parser)
    return parser.parse_args(list(words))


def planned(*words: str) -> list[dict[str, Any]]:
    return cells(axes_of(options(*words), *accuracy.of_recall()))


def measured(cell: dict[str, Any], right: float = 1.0, held: float = 1000.0, kl: float = 0.0) -> dict[str, Any]:
    turn = {"accuracy": right, "low": right - 0.02, "high": right, "nll": 0.1, "margin_p5": 3.0, "kl": kl, "n": 512}
    both = {**turn, **{f"second_{name}": value for name, value in turn.items()}}
    return {"cell": cell, "model": "recall", "knobs": dict(cell["knobs"]), "bytes": held, **both}


def test_every_policy_has_a_control_that_keeps_everything() -> None:
    found = planned("--quick")
    policies = {cell["knobs"]["policy"] for cell in found} - {"full"}
    controls = [cell["knobs"] for cell in found if cell["role"] == "control"]
    assert {knobs["policy"] for knobs in controls} == policies
    assert all(knobs["kept_share"] == "1" for knobs in controls)


def test_int4_in_the_same_bytes_stands_beside_every_factored_or_merged_row() -> None:
    found = planned("--quick")
    compared = [cell["knobs"] for cell in found if cell["knobs"].get("cold_form") in ("lowrank", "merged")]
    assert len(compared) == 8
    for cell in found:
        if cell["role"] == "equal_bytes":
            assert compared.count(cell["knobs"]) == 2


def test_no_question_is_shown_to_what_decides_importance_unless_it_is_asked_for() -> None:
    assert all("importance" not in cell["knobs"] for cell in planned("--quick"))
    shown = planned("--quick", "--policy", "window", "--importance", "aware")
    row = make([measured(cell) for cell in shown], "shipped", {})
    assert all("QUESTION SHOWN" in str(cells[0]) for cells in row.tables[0].rows)


def test_rows_have_every_key_that_others_read() -> None:
    found = make([measured(cell) for cell in planned("--quick")], "shipped", {})
    rows = json.loads(as_json(found))["rows"]
    assert all(set(KEYS) <= set(row) for row in rows)
    assert {row["form"] for row in rows} >= {"hot", "merged", "evicted", "lowrank", "cold_int4", "cold_int2"}


def test_a_control_unlike_the_full_cache_and_a_full_cache_that_is_wrong_are_said() -> None:
    found = planned("--quick", "--policy", "full,window")
    bad = [measured(cell, right=0.9, kl=0.5 if cell["role"] == "control" else 0.0) for cell in found]
    warned = " ".join(make(bad, "shipped", {}).warns)
    assert "the full cache is right in 90.0%" in warned
    assert "differs from the full cache by 0.5 nats" in warned


def test_the_front_holds_what_nothing_beats_in_fewer_bytes() -> None:
    rows = [{"bytes": b, "accuracy": a} for b, a in ((1, 0.2), (2, 0.1), (3, 0.9), (4, 0.9), (5, 1.0))]
    assert [row["bytes"] for row in front(rows)] == [1, 3, 5]


def test_the_same_table_is_drawn_for_terminals_and_browsers() -> None:
    found = make([measured(cell, held=1000.0 + i) for i, cell in enumerate(planned("--quick"))], "shipped", {})
    assert "block_sparse 0.25 bounds" in text.render(found)
    assert "<svg" in html.render(found)


def test_an_interrupted_table_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def rows(order: dict[str, Any], *_: object) -> Iterator[dict[str, Any]]:
        asked.append(len(order["cells"]))
        yield from (measured(cell) for cell in order["cells"][:2])

    monkeypatch.setattr(_child, "rows", rows)
    words = ("--quick", "--policy", "window", "--log", str(tmp_path / "rows.jsonl"))
    accuracy.measure(options(*words))
    accuracy.measure(options(*words))
    assert asked[0] - asked[1] == 2


def test_a_line_that_a_kill_cut_off_is_measured_again(tmp_path: Path) -> None:
    path, cell = tmp_path / "rows.jsonl", planned("--quick")[0]
    Log(path, {}).add(measured(cell), cell)
    path.write_text(path.read_text()[:-20])
    assert Log(path, {}).get(cell) is None


@pytest.mark.parametrize("wrong", ["0", "2", "1/x", "1/0"])
def test_a_density_that_cannot_be_is_refused(wrong: str) -> None:
    with pytest.raises(UsageError, match="--density"):
        densities(wrong)


def test_a_policy_that_is_not_there_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "accuracy", "--policy", "windows"]) == 2
    assert "did you mean 'window'" in capsys.readouterr().err
