"""What each block size wastes and what its bookkeeping costs, for your lengths; recommends one.

Lengths come from --trace (a log, JSON or CSV), from the finished requests of --target, from --mix, or are the default
long tail: 70 % below 2K tokens, 20 % to 16K, 10 % above.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from kvscope.bench.workload import lengths
from kvscope.bench.workload.lengths import DEFAULT, Band, band_of
from kvscope.bench.workload.trace import read_trace
from kvscope.errors import NotEnoughData, UsageError
from kvscope.plan import geometry
from kvscope.plan.bound import plain_bytes
from kvscope.result.result import Plot, Quantity, Result, Series, Table
from kvscope.sources import open_target

EXAMPLE_TOKEN_BYTES, EXAMPLE_LAYERS = 131072, 32
"""A model of 32 layers with 8 KV heads of 128 in 16 bits, when no --config says otherwise."""
LAYER_BLOCK_BYTES = 8
"""A table entry and a reference count, 4 bytes each, in every layer."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Lengths, model, compression."""
    lengths = parser.add_mutually_exclusive_group()
    lengths.add_argument("--trace", metavar="FILE", help="a log or trace: one request a line, JSON or CSV")
    lengths.add_argument("--target", metavar="TARGET", help="the finished requests of an engine or recording")
    lengths.add_argument("--mix", metavar="SPEC", help="PERCENT:LOW-HIGH,… (70:128-2K,20:2K-16K,10:16K-64K)")
    parser.add_argument(
        "--config", metavar="FILE", help="config.json of the model (default: 32 layers, 128 KiB a token)"
    )
    parser.add_argument("--kv-dtype", default="bf16", metavar="T", help="of the uncompressed KV (bf16)")
    parser.add_argument(
        "--kept", type=float, default=0.28, metavar="SHARE", help="entries that compression keeps (0.28)"
    )
    parser.add_argument(
        "--width", type=float, default=1.0, metavar="SHARE", help="bytes of a kept entry to a full one (1)"
    )
    parser.add_argument("--no-representative", action="store_true", help="blocks carry no mean key to be chosen by")
    parser.add_argument("--current", type=int, default=16, metavar="N", help="the block size in use (16)")


def measure(options: argparse.Namespace) -> Result:
    """Return the result."""
    for name in ("kept", "width"):
        if not 0 < getattr(options, name) <= 1:
            raise UsageError(f"--{name} {getattr(options, name):g}: expected more than 0 and at most 1")
    if options.current < 1:
        raise UsageError(f"--current {options.current}: expected at least 1")
    lengths, origin = _lengths(options)
    token_bytes, layers, model = _model(options)
    table = float(layers * LAYER_BLOCK_BYTES)
    mean_key = 0.0 if options.no_representative else token_bytes / 2
    full = Costs(token_bytes, table)
    packed = Costs(token_bytes * options.width, table + mean_key, options.kept)
    return result_of(lengths, full, packed, options.current, {"lengths": origin, "model": model})


def _lengths(options: argparse.Namespace) -> tuple[list[int], str]:
    if options.trace:
        return [one.tokens_in + one.tokens_out for one in read_trace(Path(options.trace))], options.trace
    if options.target:
        return _of_target(options.target), options.target
    if options.mix:
        return lengths.grid(lengths.parse(options.mix)), options.mix
    return lengths.grid(lengths.DEFAULT), "70 % below 2K, 20 % to 16K, 10 % to 64K"


def _of_target(target: str) -> list[int]:
    with closing(open_target(target)) as source:
        samples = source.poll().samples
    asked, told = (
        {sample.t: sample.value for sample in samples if sample.metric == f"request.tokens_{way}"}
        for way in ("in", "out")
    )
    found = [int(value + told.get(t, 0.0)) for t, value in asked.items()]
    if not found:
        raise NotEnoughData(
            f"{target}: no finished request with its lengths; expected request.tokens_in, one a request"
        )
    return found


def _model(options: argparse.Namespace) -> tuple[float, int, str]:
    """Bytes of a token over all layers, number of layers, name."""
    if not options.config:
        return float(EXAMPLE_TOKEN_BYTES), EXAMPLE_LAYERS, "32 layers, 8 KV heads of 128"
    model = geometry(Path(options.config))
    forms, context = model.forms(options.kv_dtype), 4096
    held = min(model.held(context, forms).total_bytes, plain_bytes(model, context, forms) or float("inf"))
    return held / context, len(model.counted()), model.model_type


SIZES = tuple(1 << power for power in range(10))
WASTE_LIMIT = 0.15
"""Above this share a smaller or variable block is worth a look."""
EQUAL = 0.005
"""Totals this close count as equal, and the larger block wins: reads like long runs."""
SUBDIVISION = 8
"""The what-if: the last block may be cut into eighths, one table entry a piece (powers of two)."""


@dataclass(frozen=True, slots=True)
class Costs:
    """``entry_bytes`` of one kept token over all layers, ``block_bytes`` of bookkeeping a block, ``kept`` of tokens.

    A request of L tokens keeps ``kept`` × L entries. Blocks of b entries waste what their last one does not fill, half
    a block on average, whatever L is: the shorter what is kept, the larger the share. Each block also has a table entry
    and, where reads are sparse, a representative to be chosen by: small blocks pay that often. The sum has a minimum
    between.
    """

    entry_bytes: float
    block_bytes: float
    kept: float = 1.0

    def entries(self, length: int) -> int:
        """Entries a request of that length keeps; at least one."""
        return max(1, math.ceil(self.kept * length))


@dataclass(frozen=True, slots=True)
class Paged:
    """All requests together in blocks of one size, in bytes."""

    size: int
    used: float
    allocated: float
    table: float

    @property
    def waste_share(self) -> float:
        """Space in blocks that holds nothing / all space in blocks."""
        return 1 - self.used / self.allocated

    @property
    def table_share(self) -> float:
        """Bookkeeping / everything."""
        return self.table / (self.allocated + self.table)

    @property
    def total_share(self) -> float:
        """Everything that is no kept entry / everything."""
        return 1 - self.used / (self.allocated + self.table)


def paged(lengths: Iterable[int], size: int, costs: Costs) -> Paged:
    """Put requests into blocks of ``size`` entries."""
    entries = [costs.entries(length) for length in lengths]
    blocks = sum(-(-count // size) for count in entries)
    return Paged(size, sum(entries) * costs.entry_bytes, blocks * size * costs.entry_bytes, blocks * costs.block_bytes)


def paged_with_tails(lengths: Iterable[int], size: int, costs: Costs) -> Paged:
    """The what-if: like `paged`, but the last block is made of pieces, the smallest an eighth of a block."""
    entries = [costs.entries(length) for length in lengths]
    unit = max(1, size // SUBDIVISION)
    units = [-(-(count % size) // unit) for count in entries]
    allocated = sum(count // size * size + tail * unit for count, tail in zip(entries, units, strict=True))
    blocks = sum(count // size + tail.bit_count() for count, tail in zip(entries, units, strict=True))
    return Paged(size, sum(entries) * costs.entry_bytes, allocated * costs.entry_bytes, blocks * costs.block_bytes)


def recommended(found: Sequence[Paged]) -> Paged:
    """Return the largest size whose total is within ``EQUAL`` of the least, among those within the waste limit."""
    allowed = [one for one in found if one.waste_share <= WASTE_LIMIT] or list(found)
    least = min(one.total_share for one in allowed)
    return max((one for one in allowed if one.total_share <= least + EQUAL), key=lambda one: one.size)


def balance(lengths: Sequence[int], costs: Costs) -> float:
    """Return the size at which half a wasted block costs what the bookkeeping of all blocks does."""
    mean = sum(costs.entries(length) for length in lengths) / len(lengths)
    return math.sqrt(2 * costs.block_bytes * mean / costs.entry_bytes)


def result_of(lengths: Sequence[int], full: Costs, packed: Costs, current: int, tags: dict[str, str]) -> Result:
    """Judge every block size for these lengths, uncompressed (``full``) and compressed (``packed``)."""
    sizes = sorted({*SIZES, current})
    before = [paged(lengths, size, full) for size in sizes]
    after = [paged(lengths, size, packed) for size in sizes]
    tails = [paged_with_tails(lengths, size, packed) for size in sizes]
    best, best_before = recommended(after), recommended(before)
    here = after[sizes.index(current)]
    return Result(
        bench="blocks",
        title=f"Block size for {len(lengths)} requests of {sum(lengths) / len(lengths):.0f} tokens on average",
        tags={**tags, "kept share": f"{packed.kept:g}"},
        settings={
            "current block": current,
            "bytes of a token, full": round(full.entry_bytes),
            "bytes of an entry, compressed": round(packed.entry_bytes),
            "bookkeeping of a block, full": round(full.block_bytes),
            "bookkeeping of a block, compressed": round(packed.block_bytes),
        },
        quantities=tuple(_quantities(after, best)),
        tables=(_sizes_table(before, after, tails), _bands_table(lengths, packed, sizes)),
        plots=(_plot(before, after, tails),),
        says=tuple(_says(lengths, packed, best_before, best, here, tails[sizes.index(best.size)])),
        warns=tuple(_warns(lengths, packed, here)),
    )


def _quantities(after: Sequence[Paged], best: Paged) -> Iterator[Quantity]:
    yield Quantity("recommended_block_tokens", float(best.size), "tokens", 0.0)
    for one in after:
        yield Quantity(f"waste_share_b{one.size}", one.waste_share, "ratio", 0.0, "lower")
        yield Quantity(f"table_share_b{one.size}", one.table_share, "ratio", 0.0, "lower")
        yield Quantity(f"total_share_b{one.size}", one.total_share, "ratio", 0.0, "lower")


def _sizes_table(before: Sequence[Paged], after: Sequence[Paged], tails: Sequence[Paged]) -> Table:
    columns = ("block", "full: waste", "table", "compressed: waste", "table", "total", "variable: total")
    rows = tuple(
        (b.size, b.waste_share, b.table_share, a.waste_share, a.table_share, a.total_share, t.total_share)
        for b, a, t in zip(before, after, tails, strict=True)
    )
    distinct = (*columns[:2], "full: table", columns[3], "compressed: table", "compressed: total", columns[6])
    return Table("Shares of KV memory", distinct, ("", *("ratio",) * 6), rows)


def _bands_table(lengths: Sequence[int], costs: Costs, sizes: Sequence[int]) -> Table:
    by_band = bands_of(lengths)
    columns = ("block", *(f"{band.name} ({len(many) / len(lengths):.0%})" for band, many in by_band))
    rows = tuple((size, *(paged(many, size, costs).waste_share for _, many in by_band)) for size in sizes)
    return Table("Waste inside blocks by length, compressed", columns, ("", *("ratio",) * len(by_band)), rows)


def bands_of(lengths: Sequence[int]) -> list[tuple[Band, list[int]]]:
    """Group lengths by three classes, short, middle and long; empty ones are left out."""
    grouped: dict[str, list[int]] = {}
    for length in lengths:
        grouped.setdefault(band_of(DEFAULT, length).name, []).append(length)
    return [(band, grouped[band.name]) for band in DEFAULT if band.name in grouped]


def _plot(before: Sequence[Paged], after: Sequence[Paged], tails: Sequence[Paged]) -> Plot:
    xs = tuple(float(one.size) for one in after)
    lines = (
        ("compressed: waste", [one.waste_share for one in after]),
        ("compressed: table", [one.table_share for one in after]),
        ("compressed: total", [one.total_share for one in after]),
        ("full: total", [one.total_share for one in before]),
        ("variable: total", [one.total_share for one in tails]),
    )
    series = tuple(Series(name, xs, tuple(values)) for name, values in lines)
    return Plot("Share of KV memory that holds no entry", "tokens of a block", "share", "ratio", series, even=True)


def _says(lengths: Sequence[int], costs: Costs, before: Paged, best: Paged, here: Paged, tails: Paged) -> Iterator[str]:
    yield (
        f"Recommended: blocks of {best.size} entries, {best.total_share:.2%} of KV memory holds no entry "
        f"({here.total_share:.2%} at {here.size}); without compression it would be {before.size}."
    )
    yield (
        f"Balance point: at {balance(lengths, costs):.1f} entries half a wasted block costs what the bookkeeping does; "
        "below it smaller blocks cost more than they save."
    )
    gain = best.total_share - tails.total_share
    word = "saves" if gain > 0 else "costs"
    yield f"Variable last block (pieces down to 1/{SUBDIVISION}): {word} {abs(gain):.2%} of KV memory at that size."
    yield (
        "Counted, not measured: each length as it stands at the end of its request. Reads prefer large blocks; what "
        "they cost is not in these shares."
    )


def _warns(lengths: Sequence[int], costs: Costs, here: Paged) -> Iterator[str]:
    if here.waste_share > WASTE_LIMIT:
        yield f"{here.waste_share:.1%} of the space in blocks of {here.size} is wasted, above {WASTE_LIMIT:.0%}."
    for band, many in bands_of(lengths):
        waste = paged(many, here.size, costs).waste_share
        if waste > WASTE_LIMIT >= here.waste_share:
            yield f"{band.name} requests waste {waste:.1%} of their blocks of {here.size}, above {WASTE_LIMIT:.0%}."
