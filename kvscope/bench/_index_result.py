"""Index and gather as a result: alone in both orders, and their share of decode in a working engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvscope import signals
from kvscope.bench.result.quantity import Quantity
from kvscope.bench.result.result import Cell, Plot, Result, Series, Table
from kvscope.errors import NotEnoughData
from kvscope.signals.reading import Missing
from kvscope.store import Segment, Store

ENOUGH = 0.30
"""The article's bar (§5.2): above it reaching KV is what binds."""
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


def make(
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
        tables=(*([_alone(rows)] if rows else []), _working(shares)),
        plots=tuple(_plots(shares)),
        says=tuple(_says(rows, shares)),
        warns=tuple(_warns(shares)),
        extra={"rows": list(rows)},
    )


def _alone(rows: Sequence[Mapping[str, Any]]) -> Table:
    columns = ("context", "kernels", "blocks in order of", "index", "gather", "attention")
    cells: list[tuple[Cell, ...]] = [
        (row["context"], row["kernels"], row["order"], *(row[part] / 1e3 for part in ("index", "gather", "attend")))
        for row in rows
    ]
    return Table("One layer of one step", columns, ("", "", "", "s", "s", "s"), tuple(cells))


def _working(shares: Sequence[Share]) -> Table:
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
