"""Block sizes side by side: full and compressed, whole mix and each band, and what follows from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvscope.bench._paging import (
    SIZES,
    SUBDIVISION,
    WASTE_LIMIT,
    Costs,
    Paged,
    balance,
    paged,
    paged_with_tails,
    recommended,
)
from kvscope.bench.result.quantity import Quantity
from kvscope.bench.result.result import Plot, Result, Series, Table
from kvscope.bench.workload.lengths import DEFAULT, Band, band_of


def make(lengths: Sequence[int], full: Costs, packed: Costs, current: int, tags: dict[str, str]) -> Result:
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
    """Group lengths by the article's three classes; empty ones are left out."""
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
