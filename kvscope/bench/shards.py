"""KV of a request spread over ranks: how even each partition is, what a step takes, and from which size on it pays.

Attention of a decode step alone (choose, attend, exchange, merge; no weights), with synthetic keys: `drift`, whose
neighbouring blocks resemble each other, and `random`. On CPUs ranks talk by gloo, on GPUs by NCCL, one GPU a rank, and
a step is replayed as one CUDA graph. While it runs, `kvscope attach` on the recorders it names shows the ranks.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvscope.bench.result.result import Result


def configure(parser: argparse.ArgumentParser) -> None:
    """What is spread, how, and over how many."""
    add = parser.add_argument
    add("--device", default="cpu", metavar="D", help="cpu (gloo) or cuda (NCCL, one GPU a rank) (cpu)")
    add("--ranks", default="1,2,4", metavar="N,…", help="numbers of ranks; 1 is always measured (1,2,4)")
    add("--partitions", metavar="NAME,…", help="by_head, contiguous, round_robin, by_layer (all)")
    add("--sizes", metavar="BxN,…", help="requests x context (1x2K,1x8K,1x32K,8x8K; cuda: 1x4K to 1x256K, 8x64K)")
    add("--kept", default="0.25", metavar="S,…", help="shares of the blocks that a step reads (0.25)")
    add("--layers", type=int, default=4, metavar="N", help="layers, one after the other (4)")
    add("--kv-heads", type=int, metavar="N", help="KV heads (4; cuda: 8)")
    add("--head-dim", type=int, metavar="N", help="width of a head (64; cuda: 128)")
    add("--group", type=int, default=4, metavar="N", help="query heads of a KV head (4)")
    add("--steps", type=int, default=12, metavar="N", help="measured steps of each cell (12)")
    add("--seconds", type=float, default=0.0, metavar="S", help="keep stepping so long in each cell, to be watched (0)")
    add("--seed", type=int, default=0, metavar="N", help="of keys and queries (0)")
    add("--timeout", type=float, default=30.0, metavar="S", help="end when a living rank does not answer so long (30)")
    add("--logs", metavar="DIR", help="keep there what the ranks write to stderr")
    add("--log", metavar="FILE", help="keep finished cells; with the same settings an interrupted run goes on")
    add("--no-graph", action="store_true", help="time a GPU's steps launch by launch, not as one CUDA graph")
    add("--no-balance", action="store_true", help="times only")
    add("--quick", action="store_true", help="two ranks, two sizes, under two minutes on a laptop")


def measure(options: argparse.Namespace) -> Result:
    """Measure what the log does not have yet, and return the whole."""
    from pathlib import Path

    from kvscope.bench import _shards_plan, _shards_result
    from kvscope.bench._shards_log import ShardsLog
    from kvscope.bench._shards_run import run_all

    plan = _shards_plan.plan_of(options)
    log = ShardsLog(Path(options.log) if options.log else None)
    run_all(plan, log, options.timeout, Path(options.logs) if options.logs else None)
    return _shards_result.make(plan, log)
