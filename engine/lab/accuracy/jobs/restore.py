"""Which kind of loss is it? Give one thing back at a time, on the same contexts and questions, and see what recovers.

A fault is a way of keeping KV that loses answers. Each test restores one thing alone: the bits of what is coarse, the
blocks that were dropped, all of what decode skips (k), the right choice at the same k (exact scores), or the fresh
cache (the later question asked first). A fault is named by the tests that bring its answers back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from engine.lab.accuracy import exact
from engine.lab.accuracy.cell import Cell
from engine.lab.accuracy.laboratory import Laboratory
from engine.llm import Engine

if TYPE_CHECKING:
    from engine.weights._base import Loaded

RECOVERS = 0.7
"""Of the answers lost, what a test must bring back to have found the cause."""
LOST = 0.1
"""Accuracy that must be lost for there to be anything to explain."""
SIZES = {False: (1, 48), True: (1, 8)}
"""Contexts and dialogues, by whether few are asked."""
TESTS = ("bits", "blocks", "k", "scores", "fresh")


@dataclass(frozen=True)
class Fault:
    """Knobs that lose answers, and per test the knobs that give one thing back (absent: there is nothing to give)."""

    knobs: Mapping[str, str]
    restores: Mapping[str, Mapping[str, str]]
    block: int = 32
    context: int = 2048
    density: float = 1 / 8
    scores: bool = False
    few: bool = False
    """Whether every question costs a prefill of its own, so that fewer are asked."""


SPARSE = {"min_read_tokens": "0"}
DROPS = {"importance": "aware", "policy": "heavy_hitters", **SPARSE}
FAULTS: dict[str, Fault] = {
    "cold_tier_over_quantised": Fault(
        {"policy": "combined", "kept_share": "0.5", "hot_share": "0.1", "cold_form": "lowrank", "lowrank_rank": "4"},
        {"bits": {"hot_share": "1"}, "k": {"kept_share": "1"}},
        scores=True,
    ),
    "sparse_policy_too_aggressive": Fault(
        {"policy": "block_sparse", "kept_share": "0.03", **SPARSE}, {"k": {"kept_share": "1"}}, scores=True
    ),
    "bad_block_selection": Fault(
        {"policy": "block_sparse", "kept_share": "0.2", "representatives": "mean", **SPARSE},
        {"k": {"kept_share": "1"}},
        block=64,
        scores=True,
    ),
    "multi_turn_eviction": Fault(
        {"kept_share": "0.25", **DROPS}, {"blocks": {"kept_share": "1"}}, block=16, context=1024, few=True
    ),
    "eviction": Fault({"policy": "window", "kept_share": "0.25", **SPARSE}, {"blocks": {"kept_share": "1"}}),
}


def run(order: dict[str, Any], loaded: Loaded, tell: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """One row a fault and seed: accuracy of the second turn, full, lost and restored; what it is called after."""
    laboratory = Laboratory(loaded, tell)
    for seed in order["seeds"]:
        for name in order.get("faults") or FAULTS:
            tell(f"{name}, seed {seed}")
            yield {"fault": name, "seed": seed, **examine(laboratory, FAULTS[name], int(seed), order["task"])}


def examine(laboratory: Laboratory, fault: Fault, seed: int, task: str) -> dict[str, Any]:
    """Run every test there is for a fault."""
    documents, dialogues = SIZES[fault.few]
    knobs = dict(fault.knobs)
    cell = Cell(task, fault.context, fault.density, fault.block, seed, documents, dialogues, knobs)
    full, lost = _right(laboratory, cell.with_knobs(policy="full")), _right(laboratory, cell)
    first = _right(laboratory, cell, turn=0)
    found = {test: _right(laboratory, cell.with_knobs(**changes)) for test, changes in fault.restores.items()}
    if fault.scores:
        found["scores"] = _right(laboratory, cell, prepare=exact.use)
    found["fresh"] = _right(laboratory, replace(cell, fresh=True), turn=0)
    back = {test: recovered(full, lost, found.get(test)) for test in TESTS}
    return {
        "full": full,
        "lost": lost,
        "first_turn": first,
        "restored": found,
        "back": back,
        "named": name(back, full - lost),
    }


def _as_it_is(engine: Engine) -> None:
    """The engine is asked as its knobs made it."""


def _right(
    laboratory: Laboratory, cell: Cell, *, turn: int = 1, prepare: Callable[[Engine], None] = _as_it_is
) -> float:
    answers, _ = laboratory.answers(cell, prepare)
    right, of = answers[turn].whole
    return right / of


def recovered(full: float, lost: float, restored: float | None) -> float | None:
    """Share of the lost answers that came back; None where there was nothing to restore."""
    if restored is None or full - lost < LOST:
        return None
    return (restored - lost) / (full - lost)


def name(back: Mapping[str, float | None], lost: float) -> str:
    """The cause that these recoveries speak for; selection is asked first, then eviction, then bits."""
    if lost < LOST:
        return "nothing_lost"
    came = {test for test, share in back.items() if share is not None and share >= RECOVERS}
    if "scores" in came:
        return "bad_block_selection"
    if "k" in came:
        return "sparse_policy_too_aggressive"
    if "blocks" in came:
        return "multi_turn_eviction" if "fresh" in came else "eviction"
    return "cold_tier_over_quantised" if "bits" in came else "unexplained"
