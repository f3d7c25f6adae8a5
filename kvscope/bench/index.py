"""Choosing and collecting KV before attention: what it takes alone, in which order, and its share of decode.

First one layer alone: choosing blocks (index), collecting them (gather) and attention, blocks in the order of memory
and in random order. Then the built-in engine under load: the share of both in decode, by kernels and context; above
30 % reaching memory is what binds, not attention. With --target only the shares are read, from anything that tells
them: a running engine, a recording, a profiler trace of vLLM or transformers.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvscope.bench._index_result import Share
    from kvscope.bench.result.result import Result
    from kvscope.sources.builtin import BuiltinEngine

LENGTHS, QUICK_LENGTHS = (2048, 8192, 16384), (1024, 4096)
WAYS = ("generic", "block")
ROUNDS, QUICK_ROUNDS = 8, 4
CLIENTS, TOKENS_OUT = 2, 32
MODULE = "engine.index_table"


def configure(parser: argparse.ArgumentParser) -> None:
    """Lengths, what is kept, where to read."""
    add = parser.add_argument
    add("--target", metavar="TARGET", help="read the shares of this target instead of the built-in engine")
    add("--duration", type=float, default=10.0, metavar="S", help="watch a live --target so long (10)")
    add("--lengths", metavar="N,…", help="tokens of context (2K,8K,16K)")
    add("--kept", type=float, default=0.25, metavar="SHARE", help="share of the blocks that is read (0.25)")
    add("--set", action="append", default=[], metavar="NAME=VALUE", help="knobs of the engine (policy=combined)")
    add("--threads", type=int, default=2, help="threads of the engine (2)")
    add("--quick", action="store_true", help="1K and 4K only, under two minutes on a laptop")


def measure(options: argparse.Namespace) -> Result:
    """Time the parts alone, then their share of decode in a working engine."""
    from kvscope.bench import _index_result
    from kvscope.commands._amounts import token_count
    from kvscope.errors import UsageError

    if not 0 < options.kept <= 1:
        raise UsageError(f"--kept {options.kept:g}: expected more than 0 and at most 1")
    if options.target:
        return _index_result.make([], [_of_target(options)], {"target": options.target}, {})
    lengths: Sequence[int] = QUICK_LENGTHS if options.quick else LENGTHS
    if options.lengths:
        lengths = sorted({token_count(part, "--lengths") for part in options.lengths.split(",")})
    rows = _alone(options, lengths)
    tags = {"engine": "kvscope-engine", "workload": f"{CLIENTS} clients, {TOKENS_OUT} tokens out"}
    settings = {"lengths": list(lengths), "kept": options.kept, "threads": options.threads, "set": options.set}
    return _index_result.make(rows, _working(options, lengths), tags, settings)


def _alone(options: argparse.Namespace, lengths: Sequence[int]) -> list[dict[str, Any]]:
    from kvscope.bench._engine_module import run_module
    from kvscope.commands._progress import waiting

    rounds = QUICK_ROUNDS if options.quick else ROUNDS
    words = ["--kept", str(options.kept), "--rounds", str(rounds), "--threads", str(options.threads)]
    with waiting("timing one layer") as tick:
        found = run_module(MODULE, [*words, "--contexts", *map(str, lengths)], tick)
    return list(found["rows"])


def _working(options: argparse.Namespace, lengths: Sequence[int]) -> list[Share]:
    from kvscope.commands._progress import Line, waiting
    from kvscope.sources.builtin import BuiltinEngine, split_knobs

    longest = max(lengths) + TOKENS_OUT
    load = {"load.clients": CLIENTS, "load.documents": CLIENTS, "load.new_tokens": TOKENS_OUT}
    knobs = {name: str(value) for name, value in load.items()}
    knobs |= {"load.document_tokens": str(lengths[0]), "policy": "combined", "kept_share": str(options.kept)}
    pool = (CLIENTS * sum(lengths) + 4 * longest) * 4 // 1024 + 16
    flags = ("--threads", str(options.threads), "--max-context", str(longest + 256), "--pool-mib", str(pool))
    with waiting("starting the engine") as tick:
        engine = BuiltinEngine.start({**knobs, **split_knobs(options.set)}, flags, tick)
    line = Line()
    try:
        return _shares(engine, lengths, line.show)
    finally:
        line.wipe()
        engine.stop(keep_recorder=False)


def _shares(engine: BuiltinEngine, lengths: Sequence[int], tell: Any) -> list[Share]:
    from contextlib import closing

    from kvscope.bench._index_result import share_of
    from kvscope.laboratory import Laboratory, Length
    from kvscope.sources import open_target

    assert engine.control is not None
    found = []
    with closing(open_target(str(engine.ring))) as source:
        lab = Laboratory(source, engine.control, tell=tell)
        for length in lengths:
            for way in WAYS:
                name = f"{length} tokens, {way}"
                engine.control.set({"load.document_tokens": str(length), "kernels": way}, f"{name}, settling")
                lab.settle(f"{name}, settling", Length(20, 1.0, 60.0), 2 * CLIENTS)
                found.append(share_of(lab.store, lab.stretch(name, Length(120, 3.0, 20.0)), length, way))
    return found


def _of_target(options: argparse.Namespace) -> Share:
    from contextlib import closing

    from kvscope.bench._index_result import share_of
    from kvscope.commands._watch import collect, fill
    from kvscope.config import Settings
    from kvscope.sources import open_target
    from kvscope.store import Store

    store = Store()
    with closing(open_target(options.target)) as source:
        fill(store, collect(source, Settings(duration=options.duration)))
        engine = source.describe().engine
    return share_of(store, store.segments[-1], None, engine)
