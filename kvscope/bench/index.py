"""Choosing and collecting KV before attention: what it takes alone, in which order, and its share of decode.

First one layer alone: choosing blocks (index), collecting them (gather) and attention, blocks in the order of memory
and in random order. Then the built-in engine under load: the share of both in decode, by kernels and context; above
30 % reaching memory is what binds, not attention. With --target only the shares are read, from anything that tells
them: a running engine, a recording, a profiler trace of vLLM or transformers.
--device cuda measures both on a GPU, --model random:llama-8b a model whose KV is of the size people serve.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from kvscope import signals
from kvscope.amounts import token_count
from kvscope.bench import _child
from kvscope.config import Settings
from kvscope.errors import NotEnoughData, UsageError, nearest
from kvscope.laboratory import Laboratory, Length
from kvscope.progress import Line, waiting
from kvscope.result.result import Cell, Plot, Quantity, Result, Series, Table
from kvscope.signals.reading import Missing
from kvscope.sources import open_target
from kvscope.sources.builtin import BuiltinEngine, split_knobs
from kvscope.store import Segment, Store
from kvscope.watch import collect, fill

LENGTHS, QUICK_LENGTHS = (2048, 8192, 16384), (1024, 4096)
WAYS = ("generic", "block")
ROUNDS, QUICK_ROUNDS = 8, 4
TOKENS_OUT = 32
CLIENTS = {"cpu": 2, "cuda": 8}
MODULES = {"cpu": "engine.lab.tables.index_cpu", "cuda": "engine.lab.tables.index_cuda"}
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
        return result_of([], [_of_target(options)], {"target": options.target}, {})
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
    return result_of(rows, _working(options, lengths, clients), tags, settings)


def _alone(options: argparse.Namespace, lengths: Sequence[int], clients: int) -> list[dict[str, Any]]:
    rounds = QUICK_ROUNDS if options.quick else ROUNDS
    words = ["--kept", str(options.kept), "--rounds", str(rounds), "--threads", str(options.threads)]
    words += ["--batch", str(clients)]
    with waiting("timing one layer") as tick:
        found = _child.found(MODULES[options.device], [*words, "--contexts", *map(str, lengths)], tick)
    return list(found["rows"])


def _working(options: argparse.Namespace, lengths: Sequence[int], clients: int) -> list[Share]:
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
    store = Store()
    with closing(open_target(options.target)) as source:
        fill(store, collect(source, Settings(duration=options.duration)))
        engine = source.describe().engine
    return share_of(store, store.segments[-1], None, engine)


ENOUGH = 0.30
"""Above this share of decode, KV access is what binds."""
PARTS = ("index_share", "gather_share", "decompress_share", "attend_share", "linear_share")


@dataclass(frozen=True, slots=True)
class Share:
    """Parts of decode time by name, None where nobody tells; ``context`` is None where lengths are not ours."""

    context: int | None
    kernels: str
    parts: Mapping[str, float | None]
    step_s: float | None

    @property
    def reaching(self) -> float:
        """Index and gather together; a part that is not told is part of another, and counts as none."""
        return sum(self.parts[name] or 0.0 for name in PARTS[:2])

    @property
    def name(self) -> str:
        return f"{self.kernels}_{self.context}" if self.context is not None else self.kernels


def share_of(store: Store, segment: Segment, context: int | None, kernels: str) -> Share:
    """Read the parts of decode in a segment; NotEnoughData, with the remedy, when index and gather are both unknown."""
    read = {name: signals.compute(name, store, segment) for name in (*PARTS, "decode_step_s")}
    missing = [found for name in PARTS[:2] if isinstance(found := read[name], Missing)]
    if len(missing) == 2:
        raise NotEnoughData(f"index and gather are not told: {missing[0].reason}; {missing[0].remedy}")
    values = {name: None if isinstance(found, Missing) else found.value for name, found in read.items()}
    return Share(context, kernels, {name: values[name] for name in PARTS}, values["decode_step_s"])


def result_of(
    rows: Sequence[Mapping[str, Any]], shares: Sequence[Share], tags: Mapping[str, str], settings: Mapping[str, Any]
) -> Result:
    """Put both measurements into one result; a share above the bar is a warning."""
    alone = [
        Quantity(f"{row['kernels']}_{row['order']}_{row['context']}.{part}_s", row[part] / 1e3, "s", None, "lower")
        for row in rows
        for part in ("index", "gather", "attend")
    ]
    working = [Quantity(f"{one.name}.reaching_share", one.reaching, "ratio", None, "lower") for one in shares]
    return Result(
        bench="index",
        title="Index and gather: choosing and collecting KV before attention",
        tags=tags,
        settings=settings,
        quantities=(*alone, *working),
        tables=(*([_alone_table(rows)] if rows else []), _working_table(shares)),
        plots=tuple(_plots(shares)),
        says=tuple(_says(rows, shares)),
        warns=tuple(_warns(shares)),
        extra={"rows": list(rows)},
    )


def _alone_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    columns = ("context", "kernels", "blocks in order of", "index", "gather", "attention")
    cells: list[tuple[Cell, ...]] = [
        (row["context"], row["kernels"], row["order"], *(row[part] / 1e3 for part in ("index", "gather", "attend")))
        for row in rows
    ]
    return Table("One layer of one step", columns, ("", "", "", "s", "s", "s"), tuple(cells))


def _working_table(shares: Sequence[Share]) -> Table:
    columns = ("context", "kernels", "index + gather", *(name.removesuffix("_share") for name in PARTS), "step")
    rows: list[tuple[Cell, ...]] = [
        (one.context, one.kernels, one.reaching, *(one.parts[name] for name in PARTS), one.step_s) for one in shares
    ]
    return Table("Share of decode", columns, ("", "", *("ratio",) * (1 + len(PARTS)), "s"), tuple(rows))


def _plots(shares: Sequence[Share]) -> Iterator[Plot]:
    lengths = sorted({one.context for one in shares if one.context is not None})
    if len(lengths) < 2:
        return
    xs = tuple(map(float, lengths))
    by_place = {(one.kernels, one.context): one.reaching for one in shares}
    ways = dict.fromkeys(one.kernels for one in shares)
    series = tuple(Series(way, xs, tuple(by_place.get((way, length)) for length in lengths)) for way in ways)
    yield Plot("Index and gather in decode", "tokens of context", "share of decode", "ratio", series, even=True)


def _says(rows: Sequence[Mapping[str, Any]], shares: Sequence[Share]) -> Iterator[str]:
    for kernels, context in dict.fromkeys((row["kernels"], row["context"]) for row in rows):
        both = {row["order"]: row for row in rows if (row["kernels"], row["context"]) == (kernels, context)}
        if {"memory", "random"} <= set(both):
            took = {
                order: sum(both[order][part] for part in ("index", "gather", "attend"))
                for order in ("memory", "random")
            }
            times = took["random"] / took["memory"]
            cost = f"takes {times:.2f} times the order of memory" if times > 1 else "cost nothing that could be seen"
            each = f"{took['memory']:.3g} → {took['random']:.3g} ms a layer"
            yield f"{kernels}, {context} tokens: random order {cost} ({each})."
    for one in shares:
        where = f"{one.kernels}, {one.context} tokens" if one.context is not None else one.kernels
        yield f"{where}: index and gather are {one.reaching:.1%} of decode."


def _warns(shares: Sequence[Share]) -> Iterator[str]:
    for one in shares:
        if one.reaching > ENOUGH:
            where = f"{one.kernels} kernels" + (f" at {one.context} tokens" if one.context is not None else "")
            yield (
                f"{where}: index and gather take {one.reaching:.0%} of decode, above {ENOUGH:.0%}: reaching KV is what "
                "binds, so fewer bytes will not be faster; kernels that read blocks in place, or a smaller index, will"
            )
