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
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvscope.bench._accuracy_log import AccuracyLog
    from kvscope.bench._accuracy_plan import Axes
    from kvscope.bench.result.result import Result

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
    from pathlib import Path

    from kvscope.bench import _accuracy_result
    from kvscope.bench._accuracy_log import AccuracyLog
    from kvscope.bench._accuracy_plan import axes_of, cells

    recall = options.model == SHIPPED
    wanted = cells(axes_of(options, *(of_recall() if recall else of_text())))
    log = AccuracyLog(Path(options.log) if options.log else None, options.model)
    _fill(log, [cell for cell in wanted if log.get(cell) is None], len(wanted), options)
    found = [row for cell in wanted if (row := log.get(cell)) is not None]
    settings = {"cells": len(wanted), "set": options.set, "threads": options.threads}
    return _accuracy_result.make(found, options.model, settings)


def _fill(log: AccuracyLog, missing: list[dict[str, Any]], total: int, options: argparse.Namespace) -> None:
    from kvscope.bench import _child

    if not missing:
        return
    order = {"job": "table", "model": options.model, "threads": options.threads, "cells": missing}
    for row in _child.told(order, total, total - len(missing)):
        log.add(row)


def of_recall() -> tuple[Axes, Axes]:
    """Quick and whole table of the shipped model."""
    from dataclasses import replace

    from kvscope.bench._accuracy_plan import Axes

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
    from dataclasses import replace

    from kvscope.bench._accuracy_plan import Axes

    forms = ("merged", "evicted", "lowrank", "cold_int8", "cold_int4", "cold_int2")
    policies = ("full", "window", "heavy_hitters", "block_sparse", "combined")
    axes = (("needle", "multikey"), (1024,), (1 / 64,), policies, forms, (0.25,), (32,), ("sub_bounds",))
    whole = Axes(*axes, ranks=(8, 16), importance=("blind",), seeds=(0,), documents=4, dialogues=16)
    fewer, coarse = ("full", "window", "block_sparse", "combined"), ("cold_int8", "cold_int4", "cold_int2")
    quick = replace(whole, tasks=("multikey",), policies=fewer, forms=coarse, documents=2, dialogues=12)
    return quick, whole
