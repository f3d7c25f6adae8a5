"""Which cells an accuracy table has: every policy with its own settings, a control and the rows that keep it honest."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from kvscope.errors import UsageError, nearest

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
    from dataclasses import replace

    from kvscope.amounts import token_count

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
    from kvscope.sources.builtin import split_knobs

    return replace(start, **changes, extra=tuple(split_knobs(options.set).items()))
