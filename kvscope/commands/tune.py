"""Sweep block size, importance and what is kept together on the built-in engine, and propose one setting.

Every setting runs the same load, whose right answers are known. What comes out: which settings no other beats in bytes
of a held token, speed of decode and right tokens, and the best of those that lose no more than --bar points, with its
price. hot_share is how much of the context is important enough for full precision, evict_share how much is not worth
keeping at all, kept_share how much a step of decode reads.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvscope.bench._tune_grid import Grid
    from kvscope.bench._tune_run import Work

BAR = 1.0
TOKENS, QUICK_TOKENS = 8192, 2048
STEPS, QUICK_STEPS = 400, 120


def configure(parser: argparse.ArgumentParser) -> None:
    """The bar, the aim, what is swept."""
    from kvscope.commands._result import add_output

    add = parser.add_argument
    add("--bar", type=float, default=BAR, metavar="POINTS", help=f"right tokens that may be lost, of 100 ({BAR:g})")
    add("--aim", default="balanced", help="balanced (speed for each byte), memory or speed (balanced)")
    add("--blocks", metavar="N,…", help="tokens of a block (16,32,64)")
    add("--kept", metavar="SHARE,…", help="kept_share (0.125,0.25,0.5)")
    add("--hot", metavar="SHARE,…", help="hot_share (0.05,0.2)")
    add("--evict", metavar="SHARE,…", help="evict_share (0,0.25)")
    add("--cold", metavar="FORM,…", help="cold_form (cold_int8,cold_int4)")
    add("--context", metavar="N", help="tokens of a document (8K)")
    add("--steps", type=int, metavar="N", help=f"decode steps of each setting ({STEPS})")
    add("--set", action="append", default=[], metavar="NAME=VALUE", help="other knobs of the engine, for all settings")
    add("--threads", type=int, default=2, help="threads of the engine (2)")
    add("--log", metavar="FILE", help="keep finished settings; with the same options an interrupted sweep goes on")
    add("--quick", action="store_true", help="ten settings of short contexts, under two minutes on a laptop")
    add_output(parser)


def run(options: argparse.Namespace) -> int:
    """Measure every setting, print the table and the proposal; exit 0 when it was measured."""
    from pathlib import Path

    from kvscope.bench import _tune_result
    from kvscope.bench._row_log import RowLog
    from kvscope.bench._tune_front import Cell, tune
    from kvscope.bench._tune_run import cells
    from kvscope.commands._result import check_output, show
    from kvscope.progress import Line

    check_output(options)
    grid, work = _plan(options)
    about = {"blocks": grid.blocks, **grid.axes, "context": work.tokens, "steps": work.steps, "set": options.set}
    log = RowLog(Path(options.log) if options.log else None, {**about, "threads": work.threads})
    done = {cell.setting.key: cell for cell in map(Cell.from_json, log.rows)}
    line = Line()
    try:
        for cell in cells(grid, work, done, lambda text: line.show(f"{len(done) + 1} of {len(grid)}: {text}")):
            done[cell.setting.key] = cell
            log.add(cell.as_json())
    finally:
        line.wipe()
    found = tune(list(done.values()), options.bar / 100, options.aim)
    tags = {"engine": "kvscope-engine", "workload": f"{work.tokens} tokens of context"}
    show(_tune_result.make(found, options.bar / 100, tags, {**about, "bar": options.bar, "aim": options.aim}), options)
    return 0


def _plan(options: argparse.Namespace) -> tuple[Grid, Work]:
    from kvscope.amounts import token_count
    from kvscope.bench._tune_front import AIMS
    from kvscope.bench._tune_grid import grid_of
    from kvscope.bench._tune_run import Work
    from kvscope.errors import UsageError, nearest
    from kvscope.sources.builtin import split_knobs

    if options.aim not in AIMS:
        raise UsageError(f"--aim {options.aim!r}{nearest(options.aim, AIMS)}; expected {', '.join(AIMS)}")
    if not 0 <= options.bar < 100:
        raise UsageError(f"--bar {options.bar:g}: expected points from 0 to 100")
    steps = options.steps or (QUICK_STEPS if options.quick else STEPS)
    if steps < 20:
        raise UsageError(f"--steps {steps}: expected at least 20")
    short = QUICK_TOKENS if options.quick else TOKENS
    tokens = token_count(options.context, "--context") if options.context else short
    names = {"kept_share": options.kept, "hot_share": options.hot, "evict_share": options.evict}
    grid = grid_of(options.quick, options.blocks, {**names, "cold_form": options.cold})
    return grid, Work(tokens, steps, options.threads, split_knobs(options.set))
