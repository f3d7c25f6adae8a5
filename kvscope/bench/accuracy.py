"""Is a compressed cache still right? Accuracy, margin, NLL and KL to the full cache against the bytes really held.

Contexts with known facts are kept under every policy, form, share and block size asked for, and given answers are
scored through the engine's decode path: a token counts as right where greedy decoding would have said it. Every row
has a second turn that asks for what the first did not; questions are hidden from what decides importance unless the
row says QUESTION SHOWN; each policy has a control that keeps everything on the same path; int4 stands beside every low
rank or merged row in the same bytes. Bytes are those of one context with scales, statistics and tables, before anything
is asked. --log keeps every measured cell, and an interrupted run goes on from it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from kvscope.amounts import token_count
from kvscope.bench import _accuracy_table, _child
from kvscope.bench._child import Log
from kvscope.errors import UsageError, nearest
from kvscope.result.result import Result
from kvscope.sources.builtin import split_knobs

SHIPPED = "shipped"


def configure(parser: argparse.ArgumentParser) -> None:
    """Axes of the table, as lists between commas."""
    add = parser.add_argument
    add("--model", default=SHIPPED, help="shipped, smollm2, a .gguf file or a Hugging Face directory (shipped)")
    add("--tasks", metavar="T,…", help="of the shipped model: recall, needles, near, …; of others: needle, multikey")
    add("--context", metavar="N,…", help="tokens of a context (2K,16K; other models 1K)")
    add("--density", metavar="D,…", help="facts per token (1/8,1/24; other models 1/64)")
    add("--policy", metavar="P,…", help="full, window, heavy_hitters, block_sparse, combined, turn_aware")
    add("--form", metavar="F,…", help="of what combined and turn_aware do not keep hot; evicted drops it")
    add("--kept", metavar="S,…", help="share that window and heavy_hitters keep and block_sparse reads (0.25,0.125)")
    add("--block", metavar="N,…", help="tokens of a block (64,16)")
    add("--statistics", metavar="S,…", help="what block_sparse chooses by: bounds, sub_bounds, mean, sub_mean")
    add("--rank", metavar="N,…", help="of the low-rank form (4,8,16)")
    add("--importance", metavar="I,…", help="blind, or aware: the question is shown, and rows say so (blind)")
    add("--hot", type=float, metavar="S", help="hot share of combined and turn_aware (0.25)")
    add("--read", type=float, metavar="S", help="share that combined and turn_aware read (1)")
    add("--documents", type=int, metavar="N", help="contexts of each kind (4)")
    add("--dialogues", type=int, metavar="N", help="dialogues of two turns over each context (128)")
    add("--seed", metavar="N,…", help="of contexts and questions (0)")
    add("--set", action="append", default=[], metavar="NAME=VALUE", help="further knobs, in every row")
    add("--threads", type=int, default=2, help="threads of the engine (2)")
    add("--log", metavar="FILE", help="keep measured cells here and go on from them")
    add("--quick", action="store_true", help="one task at one length, under five minutes on a laptop")


def measure(options: argparse.Namespace) -> Result:
    """Measure every cell that no log has yet."""
    recall = options.model == SHIPPED
    wanted = cells(axes_of(options, *(of_recall() if recall else of_text())))
    log = Log[dict[str, Any]](options.log, {"bench": "accuracy", "model": options.model})
    _fill(log, [cell for cell in wanted if log.get(cell) is None], len(wanted), options)
    found = [row for cell in wanted if (row := log.get(cell)) is not None]
    settings = {"cells": len(wanted), "set": options.set, "threads": options.threads}
    return _accuracy_table.make(found, options.model, settings)


def _fill(log: Log[dict[str, Any]], missing: list[dict[str, Any]], total: int, options: argparse.Namespace) -> None:
    if not missing:
        return
    order = {"job": "table", "model": options.model, "threads": options.threads, "cells": missing}
    for row in _child.rows(order, total, total - len(missing)):
        log.add(row, row["cell"])


def of_recall() -> tuple[Axes, Axes]:
    """Quick and whole table of the shipped model."""
    forms = ("merged", "evicted", "lowrank", "cold_int8", "cold_int4", "cold_int2")
    policies = ("full", "window", "heavy_hitters", "block_sparse", "combined")
    tasks = ("recall", "needles", "near", "values", "chain2", "chain4", "majority", "dialogue", "unanswerable")
    kinds = ("bounds", "sub_bounds")
    axes = (tasks, (2048, 16384), (1 / 8, 1 / 24), policies, forms, (0.25, 0.125), (64, 16), kinds)
    whole = Axes(*axes, ranks=(4, 8, 16), importance=("blind",), seeds=(0,))
    return replace(
        whole, tasks=("recall",), contexts=(4096,), densities=(1 / 8,), blocks=(64,), documents=2, dialogues=64
    ), whole


def of_text() -> tuple[Axes, Axes]:
    """Quick and whole table of a model that reads text."""
    forms = ("merged", "evicted", "lowrank", "cold_int8", "cold_int4", "cold_int2")
    policies = ("full", "window", "heavy_hitters", "block_sparse", "combined")
    axes = (("needle", "multikey"), (1024,), (1 / 64,), policies, forms, (0.25,), (32,), ("sub_bounds",))
    whole = Axes(*axes, ranks=(8, 16), importance=("blind",), seeds=(0,), documents=4, dialogues=16)
    fewer, coarse = ("full", "window", "block_sparse", "combined"), ("cold_int8", "cold_int4", "cold_int2")
    quick = replace(whole, tasks=("multikey",), policies=fewer, forms=coarse, documents=2, dialogues=12)
    return quick, whole


Knobs = dict[str, str]

WITHIN_BLOCK = {"bounds": "block", "mean": "block", "sub_bounds": "16", "sub_mean": "16"}
DROPPING, READING, FORMING = ("window", "heavy_hitters"), ("block_sparse",), ("combined", "turn_aware")
POLICIES = ("full", *DROPPING, *READING, *FORMING)
FACTORED = "lowrank"
COMPARED = (FACTORED, "merged")
"""Forms beside which int4 in the same bytes is measured."""
EVICTED = "evicted"
WHOLE = {"min_read_tokens": "0"}
"""Short contexts are not read whole: the share that a row names is the share that is read."""


@dataclass(frozen=True)
class Axes:
    """What a table goes through; ``hot`` and ``read`` are of the policies that hold blocks in several forms."""

    tasks: tuple[str, ...]
    contexts: tuple[int, ...]
    densities: tuple[float | None, ...]
    policies: tuple[str, ...]
    forms: tuple[str, ...]
    kept: tuple[float, ...]
    blocks: tuple[int, ...]
    statistics: tuple[str, ...]
    ranks: tuple[int, ...]
    importance: tuple[str, ...]
    seeds: tuple[int, ...]
    hot: float = 0.25
    read: float = 1.0
    documents: int = 4
    dialogues: int = 128
    extra: tuple[tuple[str, str], ...] = ()


def cells(axes: Axes) -> list[dict[str, Any]]:
    """Cells in the order in which contexts can be reused: same questions together, then same block size."""
    found: list[dict[str, Any]] = []
    for task in axes.tasks:
        for context in axes.contexts:
            for density in axes.densities:
                for seed in axes.seeds:
                    for importance in axes.importance:
                        for block in axes.blocks:
                            base = _base(axes, task, context, density, seed, block, importance)
                            found += [{**base, **way} for way in _ways(axes, block, importance)]
    unique: dict[str, dict[str, Any]] = {}
    for cell in found:
        unique.setdefault(repr(cell), cell)
    return list(unique.values())


def _base(
    axes: Axes, task: str, context: int, density: float | None, seed: int, block: int, importance: str
) -> dict[str, Any]:
    # With the question shown every dialogue needs a prefill of its own.
    dialogues = max(1, axes.dialogues // 8) if importance == "aware" else axes.dialogues
    sizes = {"documents": axes.documents, "dialogues": dialogues, "seed": seed, "block": block}
    return {"task": task, "context": context, "density": density, **sizes}


def _ways(axes: Axes, block: int, importance: str) -> Iterator[dict[str, Any]]:
    shown: Knobs = {"importance": "aware"} if importance == "aware" else {}
    for policy in axes.policies:
        for knobs, role in _of_policy(axes, policy, block):
            yield {"knobs": {"policy": policy, **knobs, **shown, **dict(axes.extra)}, "role": role}


def _of_policy(axes: Axes, policy: str, block: int) -> Iterator[tuple[Knobs, str]]:
    shares = [f"{kept:g}" for kept in axes.kept if kept < 1]
    if policy == "full":
        yield {}, ""
    elif policy in DROPPING:
        yield {"kept_share": "1", **WHOLE}, "control"
        yield from (({"kept_share": share, **WHOLE}, "") for share in shares)
    elif policy in READING:
        for kind in axes.statistics:
            # Statistics of 16 tokens are those of the block where a block has no more.
            if block > 16 or WITHIN_BLOCK[kind] == "block":
                yield {"kept_share": "1", "representatives": kind, **WHOLE}, "control"
                yield from (({"kept_share": share, "representatives": kind, **WHOLE}, "") for share in shares)
    else:
        reads = {"kept_share": f"{axes.read:g}", **WHOLE}
        yield {**reads, "kept_share": "1", "hot_share": "1"}, "control"
        for form in axes.forms:
            yield from _of_form(axes, form, reads)


def _of_form(axes: Axes, form: str, reads: Mapping[str, str]) -> Iterator[tuple[Knobs, str]]:
    share = f"{axes.hot:g}"
    if form == EVICTED:
        yield {**reads, "hot_share": share, "evict_share": f"{1 - axes.hot:g}"}, ""
        return
    for rank in axes.ranks if form == FACTORED else (0,):
        ranked = {"lowrank_rank": str(rank)} if rank else {}
        knobs = {**reads, "hot_share": share, "cold_form": form, **ranked}
        yield knobs, ""
        if form in COMPARED:
            yield knobs, "equal_bytes"


def densities(text: str) -> tuple[float | None, ...]:
    """``1/8,0.05``: facts per token; UsageError."""
    try:
        found = tuple(float(Fraction(part.strip())) for part in text.split(","))
    except (ValueError, ZeroDivisionError):
        raise UsageError(f"--density {text!r}: expected facts per token, e.g. 1/8,1/64") from None
    if any(one <= 0 or one > 0.5 for one in found):
        raise UsageError(f"--density {text!r}: expected more than 0 and at most 1/2")
    return found


def words(text: str, option: str, valid: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Words between commas, each one of ``valid`` if that is given; UsageError."""
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    for word in found:
        if valid and word not in valid:
            raise UsageError(f"{option} {word!r}{nearest(word, valid)}; expected some of {', '.join(valid)}")
    if not found:
        raise UsageError(f"{option} {text!r}: expected something")
    return found


def shares(text: str, option: str) -> tuple[float, ...]:
    """Shares between commas, above 0 and at most 1; UsageError."""
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"{option} {text!r}: expected shares, e.g. 0.25,0.125") from None
    if any(not 0 < one <= 1 for one in found):
        raise UsageError(f"{option} {text!r}: expected more than 0 and at most 1")
    return found


def counts(text: str, option: str, least: int = 1) -> tuple[int, ...]:
    """Whole numbers between commas; UsageError."""
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"{option} {text!r}: expected whole numbers, e.g. 16,64") from None
    if any(one < least for one in found):
        raise UsageError(f"{option} {text!r}: expected at least {least}")
    return found


def axes_of(options: argparse.Namespace, quick: Axes, whole: Axes) -> Axes:
    """The axes that options ask for, the others as in ``quick`` or ``whole``; UsageError."""
    start = quick if options.quick else whole
    changes: dict[str, Any] = {}
    if options.tasks:
        changes["tasks"] = words(options.tasks, "--tasks")
    if options.context:
        changes["contexts"] = tuple(token_count(part, "--context") for part in options.context.split(","))
    if options.density:
        changes["densities"] = densities(options.density)
    if options.policy:
        changes["policies"] = words(options.policy, "--policy", POLICIES)
    if options.form:
        changes["forms"] = words(options.form, "--form")
    if options.statistics:
        changes["statistics"] = words(options.statistics, "--statistics", tuple(WITHIN_BLOCK))
    if options.importance:
        changes["importance"] = words(options.importance, "--importance", ("blind", "aware"))
    for name, field in (("block", "blocks"), ("rank", "ranks")):
        if getattr(options, name):
            changes[field] = counts(getattr(options, name), f"--{name}", 4)
    if options.seed:
        changes["seeds"] = counts(options.seed, "--seed", 0)
    if options.kept:
        changes["kept"] = shares(options.kept, "--kept")
    for name in ("hot", "read"):
        if getattr(options, name) is not None:
            changes[name] = shares(str(getattr(options, name)), f"--{name}")[0]
    for name in ("documents", "dialogues"):
        if getattr(options, name) is not None:
            changes[name] = counts(str(getattr(options, name)), f"--{name}")[0]

    return replace(start, **changes, extra=tuple(split_knobs(options.set).items()))
