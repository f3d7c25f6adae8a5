"""What `kvscope bench shards` plans, keeps and says, from cells that nobody had to measure."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from kvscope.bench import shards
from kvscope.bench.shards import Finished, ShardsPlan, Task, groups, pays_from, plan_of, result_of
from kvscope.errors import UsageError
from kvscope.result.result import as_json


def planned(*words: str) -> ShardsPlan:
    parser = argparse.ArgumentParser()
    shards.configure(parser)
    return plan_of(parser.parse_args(words))


def found(step_s: float, *, ranks: int = 2, choice: float = 1.05) -> dict[str, Any]:
    times = {f"{name}_s": [step_s / 4] * ranks for name in ("step", "index", "attend", "exchange", "wait")}
    selected = {"choice": choice, "choice_p95": choice, "request": 1.0, "request_p95": 1.0, "batch": 1.01, "step": 1.0}
    by_rank = {**times, "sent_bytes": [8192.0] * ranks, "kv_bytes": [1e6] * ranks}
    return {
        "step_s": step_s, "graph": False, "by_rank": by_rank, "selected": selected, "memory_balance": 1.0,
        "pages_balance": 1.0,
    }  # fmt: skip


def measured(plan: ShardsPlan, **steps: dict[int, float]) -> Finished:
    """Step times by way and context; balance cells alike."""
    log = Finished(None, {})
    for task in plan.tasks:
        way = "alone" if task.ranks == 1 else str(task.cell["partition"])
        log.add(found(steps.get(way, {}).get(task.cell["context_tokens"], 1.0), ranks=task.ranks), task.key)
    return log


def test_one_rank_is_always_measured_and_ranks_are_started_once_for_all_their_cells() -> None:
    plan = planned("--ranks", "4,2", "--sizes", "1x1K,8x2K", "--no-balance")
    assert [(ranks, len(tasks)) for ranks, _, tasks in groups(plan.tasks)] == [(1, 2), (2, 8), (4, 8)]


def test_balance_is_measured_for_both_kinds_of_keys_on_the_cpu() -> None:
    plan = planned("--device", "cuda", "--ranks", "2")
    spread = [task for task in plan.tasks if task.is_(pages=False, partition="round_robin")]
    assert {task.device for task in spread} == {"cpu"}
    assert {task.cell.get("keys") for task in spread} == {"drift", "random", None}
    assert plan.common["kv_heads"] == 8


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--device", "cdua"), "did you mean 'cuda'"),
        (("--partitions", "by_heads"), "did you mean 'by_head'"),
        (("--sizes", "64K"), "expected REQUESTSxTOKENS"),
        (("--sizes", "1x100"), "whole blocks of 64"),
        (("--ranks", "two"), "expected whole numbers"),
        (("--kept", "1.5"), "more than 0 and at most 1"),
        (("--steps", "0"), "--steps 0: expected at least 1"),
    ],
)
def test_a_wrong_option_says_what_was_expected(words: tuple[str, ...], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        planned(*words)


def test_a_log_gives_back_finished_cells_and_passes_over_a_line_cut_off(tmp_path: Path) -> None:
    path, plan = tmp_path / "log.jsonl", planned("--ranks", "2", "--sizes", "1x1K", "--no-balance")
    log = Finished(path, {})
    log.add({"step_s": 1.0}, plan.tasks[0].key)
    with path.open("a") as file:
        file.write('{"ranks": 2, "device": "cpu", "ce')
    again = Finished(path, {})
    assert again.get(plan.tasks[0].key) == {"step_s": 1.0}
    assert again.get(plan.tasks[1].key) is None
    assert len(again) == 1


def test_other_settings_are_other_cells() -> None:
    one, other = (planned("--sizes", "1x1K", "--seed", seed).tasks[0] for seed in ("0", "1"))
    assert one.key != other.key
    assert one.key == Task(1, "cpu", dict(reversed(list(one.cell.items())))).key


def test_where_it_pays_lies_between_the_sizes_where_it_did_not_and_did() -> None:
    plan = planned("--ranks", "2", "--sizes", "1x1K,1x4K,1x16K,8x1K", "--no-balance")
    log = measured(
        plan, alone={1024: 1.0, 4096: 1.0, 16384: 1.0}, by_head={1024: 4.0, 4096: 2.0, 16384: 0.5},
        contiguous={1024: 0.9, 4096: 0.8, 16384: 0.7}, round_robin={1024: 2.0, 4096: 1.5, 16384: 1.1},
    )  # fmt: skip
    at, says = pays_from(plan, log, 2, "by_head", 0.25)
    assert at == pytest.approx(8192)
    assert says == "about 8192 tokens (interpolated)"
    assert pays_from(plan, log, 2, "contiguous", 0.25) == (None, "1024 tokens or less")
    assert pays_from(plan, log, 2, "round_robin", 0.25) == (None, "not up to 16384 tokens")


def test_the_result_has_the_tables_the_targets_missed_and_every_cell() -> None:
    plan = planned("--ranks", "2", "--sizes", "1x1K,1x4K")
    log = measured(plan)
    uneven = next(t for t in plan.tasks if t.is_(pages=False, partition="round_robin", keys="random"))
    log.add(found(1.0, choice=1.2), uneven.key)
    refused = next(t for t in plan.tasks if t.ranks == 2 and t.is_(partition="by_layer", context_tokens=1024))
    log.add({"error": "by_layer: too few"}, refused.key)
    result = result_of(plan, log)
    assert [table.title.split(":")[0].split(",")[0] for table in result.tables] == [
        "Step time", "From which context on one request is faster", "Selected blocks", "Pages held",
    ]  # fmt: skip
    assert result.warns == ("round_robin on 2 ranks, random keys: one choice is 1.200 on the fullest rank, above 1.1",)
    assert "by_layer on 2 ranks: by_layer: too few." in result.says
    assert len(json.loads(as_json(result))["cells"]) == len(plan.tasks)
