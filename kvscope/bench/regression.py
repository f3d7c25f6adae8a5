"""May B replace A? The same prompts under both: logit differences, first diverging token, accuracy; exit 1 if not.

A and B are knobs between commas, as in `kernels=generic` and `kernels=block`, or `policy=full` and
`policy=block_sparse,kept_share=0.25`. The same words are fed to both, so every step compares like with like, at every
fill of a block. Where B differs from A in kernels alone it must say the same but for rounding. In any case it fails
when B loses more than two points of the answers that A has right, or, for models whose answers nobody knows, when more
than two in a hundred next tokens change. `wrong=scale` and `wrong=last_block` spoil a side, to see it caught.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from kvscope.amounts import token_count
from kvscope.bench import _child
from kvscope.bench.accuracy import densities
from kvscope.result.result import Quantity, Result, Table
from kvscope.sources.builtin import split_knobs

BAR = 0.02
"""An accuracy loss above two points is too much."""
SAME_WORK = ("kernels", "selector", "wrong")
"""Knobs that say how work is done, not what is kept or read."""
CONTEXTS = "1024,2047,4096"


def configure(parser: argparse.ArgumentParser) -> None:
    """Two sides and what is held equal."""
    add = parser.add_argument
    add("a", metavar="A", help="knobs of what is there: NAME=VALUE,…")
    add("b", metavar="B", help="knobs of what shall replace it")
    add("--model", default="shipped", help="shipped, smollm2, a .gguf file or a Hugging Face directory (shipped)")
    add("--task", metavar="T", help="what is asked (recall; other models multikey)")
    add("--context", default=CONTEXTS, metavar="N,…", help=f"tokens before the questions ({CONTEXTS})")
    add("--density", default="1/16", metavar="D", help="facts per token (1/16)")
    add("--block", type=int, default=32, metavar="N", help="tokens of a block (32)")
    add("--documents", type=int, default=4, metavar="N", help="contexts of each length (4)")
    add("--set", action="append", default=[], metavar="NAME=VALUE", help="knobs of both sides")
    add("--seed", type=int, default=0, help="of contexts and questions (0)")
    add("--threads", type=int, default=2, help="threads of the engine (2)")
    add("--quick", action="store_true", help="1K tokens, two contexts")


def measure(options: argparse.Namespace) -> Result:
    """Run both sides and judge."""
    shared = split_knobs(options.set)
    a, b = ({**shared, **split_knobs(part for part in side.split(",") if part)} for side in (options.a, options.b))
    contexts = [token_count(part, "--context") for part in ("1024" if options.quick else options.context).split(",")]
    order = {
        "job": "regression",
        "model": options.model,
        "threads": options.threads,
        "task": options.task or ("recall" if options.model == "shipped" else "multikey"),
        "contexts": contexts,
        "density": densities(options.density)[0],
        "block": options.block,
        "documents": 2 if options.quick else options.documents,
        "seed": options.seed,
        "a": a,
        "b": b,
    }
    rows = list(_child.rows(order, len(contexts)))
    return result_of(rows, a, b, options.model)


def result_of(rows: Sequence[Mapping[str, Any]], a: Mapping[str, str], b: Mapping[str, str], model: str) -> Result:
    """Judge what was measured; the result says whether B failed."""
    exact = all(a.get(name) == b.get(name) for name in {*a, *b} - {*SAME_WORK})
    faults = list(faults_of(rows, exact))
    checked, steps = sum(row["checked"] for row in rows), sum(row["steps"] for row in rows)
    right = {side: sum(row[f"right_{side}"] for row in rows) for side in ("a", "b")}
    lost = (right["a"] - right["b"]) / max(1, checked)
    worst = max(rows, key=lambda row: row["differs"]["p100"])
    first = next((row["first_diverging"] for row in rows if row["first_diverging"]), None)
    kind = (
        "The sides keep and read the same: they may differ by rounding."
        if exact
        else "The sides keep or read other KV."
    )
    parted = (
        f"The first diverging token comes at {first['context']} tokens of context." if first else "No token diverges."
    )
    said = (
        kind,
        f"Largest logit difference {worst['differs']['p100']:.3g} at {worst['worst_at']} tokens of context (the logits "
        f"themselves spread by {worst['scale']:.2f}). {parted}",
        f"Answers right: A {right['a']}, B {right['b']} of {checked}: "
        f"B loses {100 * lost:.1f} points, the bar is {100 * BAR:.0f}.",
        "B FAILS." if faults else "B passes.",
    )
    quantities = (
        Quantity("answers_lost", lost, "ratio", None, "lower"),
        Quantity("largest_logit_difference", worst["differs"]["p100"], "", None, "lower"),
        Quantity("diverged_share", sum(row["diverged"] for row in rows) / max(1, steps), "ratio", None, "lower"),
    )
    return Result(
        bench="regression",
        title=f"May {_text(b)} replace {_text(a)}?",
        tags={"engine": "kvscope-engine", "model": model},
        settings={"A": _text(a), "B": _text(b), "bar": BAR},
        quantities=quantities,
        tables=(_table(rows),),
        says=said,
        warns=(*faults, *_nothing_compared(rows, exact)),
        extra={"rows": list(rows), "verdict": "fails" if faults else "passes"},
        failed=bool(faults),
    )


def faults_of(rows: Sequence[Mapping[str, Any]], exact: bool) -> list[str]:
    """Say what makes B unfit to replace A; empty when nothing does."""
    faults = []
    for row in rows:
        place = f"{row['context']} tokens"
        if exact and row["beyond"]:
            faults.append(
                f"{place}: {row['beyond']} of {row['steps']} steps differ by more than rounding, most at "
                f"{row['worst_at']} tokens of context ({row['differs']['p100']:.3g})"
            )
        if row["checked"]:
            lost = (row["right_a"] - row["right_b"]) / row["checked"]
            if lost > BAR:
                faults.append(f"{place}: {100 * lost:.1f} points of the answers are lost, the bar is {100 * BAR:.0f}")
        elif row["diverged"] > BAR * row["steps"]:
            faults.append(f"{place}: {row['diverged']} of {row['steps']} next tokens change")
    return faults


def _nothing_compared(rows: Sequence[Mapping[str, Any]], exact: bool) -> list[str]:
    """Say that both sides are one and the same, and what would make them differ; empty where they are not."""
    kernels = {row["one_kernel"] for row in rows}
    if not exact or "" in kernels:
        return []
    return [
        f"Both sides run the same kernel, {', '.join(sorted(kernels))}, so nothing was compared. "
        + (
            "The policy full has no other, whatever kernels= says: add --set policy=combined, or another policy that "
            "chooses what to read."
            if kernels == {"dense"}
            else "Give them different kernels=, selector= or policy=."
        )
    ]


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    quantiles = tuple(rows[0]["differs"])
    columns = ("context", "steps", *quantiles, "beyond rounding", "diverged", "first at", "A right", "B right", "of")
    cells = tuple(
        (
            row["context"],
            row["steps"],
            *(f"{row['differs'][name]:.2g}" for name in quantiles),
            row["beyond"],
            row["diverged"],
            row["first_diverging"]["context"] if row["first_diverging"] else None,
            row["right_a"],
            row["right_b"],
            row["checked"],
        )
        for row in rows
    )
    return Table("Logit differences (quantiles of each step's largest)", columns, ("",) * len(columns), cells)


def _text(knobs: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in knobs.items()) or "the defaults"
