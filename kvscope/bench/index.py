"""Choosing and collecting KV before attention: what it takes alone, in which order, and its share of decode.

First one layer alone: choosing blocks (index), collecting them (gather) and attention, blocks in the order of memory
and in random order. Then the built-in engine under load: the share of both in decode, by kernels and context; above
30 % reaching memory is what binds, not attention. With --target only the shares are read, from anything that tells
them: a running engine, a recording, a profiler trace of vLLM or transformers.
--device cuda measures both on a GPU, --model random:llama-8b a model whose KV is of the size people serve.
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
TOKENS_OUT = 32
CLIENTS = {"cpu": 2, "cuda": 8}
MODULES = {"cpu": "engine.index_table", "cuda": "engine.kernels._cuda.index_table"}
"""By device, the module that times one layer there."""
BLOCK_TOKENS = {"cpu": 32, "cuda": 64}
SHIPPED, KIB_A_TOKEN = "shipped", 4


def configure(parser: argparse.ArgumentParser) -> None:
    """Lengths, what is kept, where to read."""
    add = parser.add_argument
    add("--target", metavar="TARGET", help="read the shares of this target instead of the built-in engine")
    add("--duration", type=float, default=10.0, metavar="S", help="watch a live --target so long (10)")
    add("--lengths", metavar="N,…", help="tokens of context (2K,8K,16K)")
    add("--kept", type=float, default=0.25, metavar="SHARE", help="share of the blocks that is read (0.25)")
    add("--set", action="append", default=[], metavar="NAME=VALUE", help="knobs of the engine (policy=combined)")
    add("--device", default="cpu", metavar="NAME", help="where one layer and the engine run: cpu (default) or cuda")
    add(
        "--model",
        default=SHIPPED,
        metavar="NAME",
        help="of the engine, as for serve: shipped (default), random:SHAPE, …",
    )
    add("--clients", type=int, metavar="N", help="requests at once, one layer's too (2; 8 with --device cuda)")
    add("--pool-mib", type=int, metavar="N", help="KV pool of the engine in MiB (what the shipped model needs)")
    add("--threads", type=int, default=2, help="threads of the engine (2)")
    add("--quick", action="store_true", help="1K and 4K only, under two minutes on a laptop")


def measure(options: argparse.Namespace) -> Result:
    """Time the parts alone, then their share of decode in a working engine."""
    from kvscope.amounts import token_count
    from kvscope.bench import _index_result
    from kvscope.errors import UsageError, nearest

    if not 0 < options.kept <= 1:
        raise UsageError(f"--kept {options.kept:g}: expected more than 0 and at most 1")
    if options.device not in MODULES:
        raise UsageError(
            f"--device {options.device!r}{nearest(options.device, MODULES)}; expected {' or '.join(MODULES)}"
        )
    if options.model != SHIPPED and options.pool_mib is None:
        raise UsageError(f"--model {options.model}: say how large its KV pool is, --pool-mib N")
    if options.clients is not None and options.clients < 1:
        raise UsageError(f"--clients {options.clients}: expected at least 1")
    if options.target:
        return _index_result.make([], [_of_target(options)], {"target": options.target}, {})
    lengths: Sequence[int] = QUICK_LENGTHS if options.quick else LENGTHS
    if options.lengths:
        lengths = sorted({token_count(part, "--lengths") for part in options.lengths.split(",")})
    clients = options.clients or CLIENTS[options.device]
    rows = _alone(options, lengths, clients)
    tags = {
        "engine": "kvscope-engine",
        "device": options.device,
        "model": options.model,
        "workload": f"{clients} clients, {TOKENS_OUT} tokens out",
    }
    settings = {"lengths": list(lengths), "kept": options.kept, "threads": options.threads, "set": options.set}
    return _index_result.make(rows, _working(options, lengths, clients), tags, settings)


def _alone(options: argparse.Namespace, lengths: Sequence[int], clients: int) -> list[dict[str, Any]]:
    from kvscope.bench._engine_module import run_module
    from kvscope.progress import waiting

    rounds = QUICK_ROUNDS if options.quick else ROUNDS
    words = ["--kept", str(options.kept), "--rounds", str(rounds), "--threads", str(options.threads)]
    words += ["--batch", str(clients)]
    with waiting("timing one layer") as tick:
        found = run_module(MODULES[options.device], [*words, "--contexts", *map(str, lengths)], tick)
    return list(found["rows"])


def _working(options: argparse.Namespace, lengths: Sequence[int], clients: int) -> list[Share]:
    from kvscope.progress import Line, waiting
    from kvscope.sources.builtin import BuiltinEngine, split_knobs

    longest = max(lengths) + TOKENS_OUT
    load = {"load.clients": clients, "load.documents": clients, "load.new_tokens": TOKENS_OUT, "load.circle": 1}
    knobs = {name: str(value) for name, value in load.items()}
    knobs |= {"load.document_tokens": str(lengths[0]), "policy": "combined", "kept_share": str(options.kept)}
    knobs["max_running"] = str(max(8, clients))
    pool = options.pool_mib or (clients * sum(lengths) + 4 * longest) * KIB_A_TOKEN // 1024 + 16
    words = {
        "threads": options.threads, "max-context": longest + 256, "pool-mib": pool, "device": options.device,
        "model": options.model, "block-tokens": BLOCK_TOKENS[options.device],
    }  # fmt: skip
    flags = tuple(word for name, value in words.items() for word in (f"--{name}", str(value)))
    with waiting("starting the engine") as tick:
        engine = BuiltinEngine.start({**knobs, **split_knobs(options.set)}, flags, tick)
    line = Line()
    try:
        return _shares(engine, lengths, clients, line.show)
    finally:
        line.wipe()
        engine.stop(keep_recorder=False)


def _shares(engine: BuiltinEngine, lengths: Sequence[int], clients: int, tell: Any) -> list[Share]:
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
                lab.settle(f"{name}, settling", Length(20, 1.0, 60.0), 2 * clients)
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
