"""Which loss is it? Restore bits, dropped blocks, k, the right choice or a fresh cache, one at a time, and see.

Five ways of losing answers are brought about in the built-in engine, and each is named by what brings its answers back
on the same contexts and questions: the bits of a coarse cold tier, the blocks that were dropped, all of what decode
skips (k), an exact choice at the same k (scores), the later question asked first (fresh). Exit 1 when one is misnamed.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from kvscope.bench import _child
from kvscope.bench.accuracy import counts, words
from kvscope.result.result import Quantity, Result, Table

TESTS = ("bits", "blocks", "k", "scores", "fresh")


def configure(parser: argparse.ArgumentParser) -> None:
    """Seeds and faults."""
    add = parser.add_argument
    add("--faults", metavar="F,…", help="only these, by the cause's name (all)")
    add("--seed", default="0,1,2", metavar="N,…", help="of contexts and questions (0,1,2)")
    add("--model", default="shipped", help="a model that knows the recall tasks (shipped)")
    add("--task", default="recall", metavar="T", help="what is asked (recall)")
    add("--threads", type=int, default=2, help="threads of the engine (2)")
    add("--quick", action="store_true", help="one seed")


def measure(options: argparse.Namespace) -> Result:
    """Bring every fault about and have it named."""
    seeds = (0,) if options.quick else counts(options.seed, "--seed", 0)
    faults = list(words(options.faults, "--faults")) if options.faults else []
    order = {"job": "restore", "model": options.model, "threads": options.threads, "task": options.task}
    total = len(seeds) * (len(faults) or len(TESTS))
    rows = list(_child.rows({**order, "seeds": seeds, "faults": faults}, total))
    return result_of(rows, options.model)


def result_of(rows: Sequence[Mapping[str, Any]], model: str) -> Result:
    """A row a fault and seed: what was lost, what each test brought back, what it was called."""
    columns = ("fault", "seed", "full", "1st turn", "2nd turn", *TESTS, "named")
    units = ("", "", "ratio", "ratio", "ratio", *("ratio",) * len(TESTS), "")
    cells = tuple(
        (
            row["fault"],
            row["seed"],
            row["full"],
            row["first_turn"],
            row["lost"],
            *(row["back"][test] for test in TESTS),
            row["named"],
        )
        for row in rows
    )
    wrong = [row for row in rows if row["named"] != row["fault"]]
    right = len(rows) - len(wrong)
    return Result(
        bench="restore",
        title="Losses of accuracy, each named by what brings the answers back",
        tags={"engine": "kvscope-engine", "model": model},
        quantities=(Quantity("named_right", right / max(1, len(rows)), "ratio", None, "higher"),),
        tables=(Table("Share of the lost answers that each restored thing brings back", columns, units, cells),),
        says=(f"{right} of {len(rows)} losses were named rightly by their restore tests.",),
        warns=tuple(f"{row['fault']}, seed {row['seed']}: was called {row['named']}" for row in wrong),
        extra={"rows": list(rows)},
        failed=bool(wrong),
    )
