"""The accuracy table as a result: rows that are fit to be compared, Pareto plot, and sentences where they hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kvscope.result.result import Cell, Plot, Quantity, Result, Series, Table

Row = Mapping[str, Any]
FULL_IS_RIGHT = 0.99
"""Accuracy the full cache must reach before a row says anything of compression."""
SAME = 1e-3
"""Nats by which a control may differ from the full cache: it keeps and reads everything, on another path."""


def row_of(found: Mapping[str, Any]) -> dict[str, Any]:
    """One row with every key of the table; ``form`` says how blocks outside the hot share are held."""
    cell, knobs = found["cell"], found["knobs"]
    policy = knobs["policy"]
    sizes = {key: cell[key] for key in ("task", "context", "density", "block", "seed")}
    measured = {key: value for key, value in found.items() if key not in ("cell", "knobs", "model")}
    return {
        **sizes,
        "policy": policy,
        "form": _form(knobs, cell["role"]),
        "kept": float(knobs.get("kept_share", 1)) if policy != "full" else 1.0,
        **measured,
        "control": cell["role"] == "control",
        "role": cell["role"],
        "importance": knobs.get("importance", "blind"),
        "statistics": knobs.get("representatives", "sub_bounds"),
        "rank": int(knobs["lowrank_rank"]) if knobs.get("cold_form") == "lowrank" else None,
        "hot": float(knobs["hot_share"]) if "hot_share" in knobs else None,
        "model": found["model"],
        "beside": cell["knobs"].get("cold_form") if cell["role"] == "equal_bytes" else None,
        "beside_rank": cell["knobs"].get("lowrank_rank") if cell["role"] == "equal_bytes" else None,
    }


def _form(knobs: Mapping[str, str], role: str) -> str:
    if knobs["policy"] not in ("combined", "turn_aware") or role == "control":
        return "hot"
    if float(knobs.get("evict_share", 0)) + float(knobs.get("hot_share", 0)) >= 1 - 1e-9:
        return "evicted"
    return knobs.get("cold_form", "cold_int8")


def way(row: Row) -> str:
    """How KV is kept in this row, in a few words."""
    policy = row["policy"]
    if policy == "full":
        return "full cache"
    if row["role"] == "equal_bytes":
        beside = f"{row['beside']}{' rank ' + row['beside_rank'] if row['beside_rank'] else ''}"
        return f"{policy} cold_int4 = bytes of {beside}"
    words = [policy, _what(row)]
    if policy == "block_sparse":
        words.append(row["statistics"])
    if row["importance"] == "aware":
        words.append("QUESTION SHOWN")
    return " ".join([*words, *(["control"] if row["control"] else [])])


def _what(row: Row) -> str:
    if row["form"] == "hot":
        return f"{row['kept']:.4g}"
    rank = f" rank {row['rank']}" if row["rank"] is not None else ""
    read = "" if row["kept"] == 1 else f" read {row['kept']:.4g}"
    return f"{row['form']}{rank}{read}"


def family(row: Row) -> str:
    """Rows of one line in a plot."""
    if row["policy"] in ("combined", "turn_aware"):
        return f"{row['policy']} {row['form']}"
    return str(row["policy"])


def data(row: Row) -> tuple[Any, ...]:
    """Rows that agree were asked the same."""
    return (row["task"], row["context"], row["density"], row["seed"], row["importance"])


def front(rows: Sequence[Row]) -> list[Row]:
    """Rows that no other beats: none is more accurate in as few bytes. By rising bytes."""
    best, found = -1.0, []
    for row in sorted(rows, key=lambda row: (row["bytes"], -row["accuracy"])):
        if row["accuracy"] > best:
            best = row["accuracy"]
            found.append(row)
    return found


def density_text(density: float | None) -> str:
    """Facts per token as people say it."""
    return "-" if density is None else f"1/{1 / density:.4g}"


POINTS = 0.10
TOLD_APART = 0.02
SHARE = 0.25


def says(rows: Sequence[Row]) -> Iterator[str]:
    """One sentence a fact, for each context that was asked about."""
    for key in dict.fromkeys(data(row) for row in rows):
        same = [row for row in rows if data(row) == key and not row["control"]]
        place = f"{key[0]}, {key[1]} tokens, {density_text(key[2])} facts a token"
        for said in (*_dropped(same), *_statistics(same), *_merged(same), *_ranks(same), *_bits(same)):
            yield f"{place}: {said}"


def warns(rows: Sequence[Row]) -> Iterator[str]:
    """What makes rows worthless: a full cache that is not right, a control that is not the full cache."""
    for row in rows:
        if row["policy"] == "full" and min(row["accuracy"], row["second_accuracy"]) < FULL_IS_RIGHT:
            yield (
                f"{row['task']}, {row['context']} tokens: the full cache is right in {_both(row)} only: part of what "
                f"other rows lose was never there"
            )
        if row["control"] and max(row["kl"], row["second_kl"]) > SAME:
            yield f"{way(row)}: a control differs from the full cache by {max(row['kl'], row['second_kl']):.3g} nats"


def _both(row: Row) -> str:
    return f"{row['accuracy']:.1%} (second turn {row['second_accuracy']:.1%})"


def _dropped(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        if row["policy"] in ("window", "heavy_hitters") and row["kept"] == SHARE and row["importance"] == "blind":
            kept = f"{row['policy']} keeps {SHARE:.0%} without seeing the question"
            yield f"{kept}: right in {_both(row)} ({'fails' if row['high'] < 1 - POINTS else 'holds'})"


def _statistics(rows: Sequence[Row]) -> Iterator[str]:
    sparse = [row for row in rows if row["policy"] == "block_sparse"]
    for coarse in (row for row in sparse if row["block"] == 64 and row["statistics"] == "bounds"):
        fine = [
            row
            for row in sparse
            if row["kept"] == coarse["kept"]
            and (row["block"], row["statistics"]) in ((64, "sub_bounds"), (16, "bounds"))
        ]
        for row in fine:
            gap = row["accuracy"] - coarse["accuracy"]
            what = f"blocks of {row['block']} with bounds of 16 tokens"
            yield (
                f"{coarse['kept']:.4g} read by bounds of 64 tokens: {coarse['accuracy']:.1%}; {what}: "
                f"{row['accuracy']:.1%} ({100 * gap:+.1f} points{'' if abs(gap) >= POINTS else ', not told apart'})"
            )


def _merged(rows: Sequence[Row]) -> Iterator[str]:
    merged, gone = _with(rows, "merged"), _with(rows, "evicted")
    if merged and gone:
        gap = merged["accuracy"] - gone["accuracy"]
        same = abs(gap) <= max(TOLD_APART, merged["high"] - merged["accuracy"])
        yield (
            f"merged blocks {merged['accuracy']:.1%}, the same blocks evicted {gone['accuracy']:.1%}: a mean recovers "
            f"{'nothing' if same else f'{100 * gap:+.1f} points'} of exact recall"
        )


def _ranks(rows: Sequence[Row]) -> Iterator[str]:
    ranked = sorted((row for row in rows if row["form"] == "lowrank"), key=lambda row: row["rank"])
    if len(ranked) > 1 and ranked[0]["density"]:
        facts = ranked[0]["density"] * ranked[0]["block"]
        told = ", ".join(f"rank {row['rank']} {row['accuracy']:.1%}" for row in ranked)
        yield f"low rank with {facts:.1f} facts a block: {told}"
        for row in rows:
            if row["role"] == "equal_bytes" and row["beside"] == "lowrank":
                beside = next((one for one in ranked if str(one["rank"]) == row["beside_rank"]), None)
                if beside:
                    yield (
                        f"int4 in the bytes of rank {beside['rank']} ({row['bytes'] / beside['bytes']:.2f} of them): "
                        f"{row['accuracy']:.1%} against {beside['accuracy']:.1%}"
                    )


def _bits(rows: Sequence[Row]) -> Iterator[str]:
    found = [row for name in ("cold_int8", "cold_int4", "cold_int2") if (row := _with(rows, name))]
    if len(found) > 1:
        told = "; ".join(f"{row['form'][5:]} {row['accuracy']:.1%}, margin {row['margin_p5']:.2f}" for row in found)
        yield f"bits, by accuracy and 5th-percentile margin: {told}"


def _with(rows: Sequence[Row], form: str) -> Row | None:
    return next((row for row in rows if row["form"] == form and not row["role"]), None)


COLUMNS = (
    "way",
    "block",
    "accuracy",
    "95 %",
    "2nd turn",
    "NLL",
    "margin p5",
    "KL to full",
    "bytes",
    "of full",
    "front",
)
UNITS = ("", "", "ratio", "", "ratio", "", "", "", "B", "ratio", "")


def make(found: Sequence[dict[str, Any]], model: str, settings: dict[str, Any]) -> Result:
    """Skipped cells are named among the warnings."""
    rows = [row_of(one) for one in found if "skipped" not in one]
    skipped = [f"{one['cell']['task']} not measured: {one['skipped']}" for one in found if "skipped" in one]
    groups = [[row for row in rows if data(row) == key] for key in dict.fromkeys(data(row) for row in rows)]
    return Result(
        bench="accuracy",
        title="Accuracy of compressed KV: given answers scored through the decode path",
        tags={"engine": "kvscope-engine", "model": model},
        settings=settings,
        quantities=tuple(_quantities(rows)),
        tables=tuple(_table(group) for group in groups),
        plots=tuple(_plot(group) for group in groups),
        says=tuple(says(rows)),
        warns=(*dict.fromkeys(skipped), *warns(rows)),
        extra={"rows": rows},
    )


def _heading(group: Sequence[Row]) -> str:
    first = group[0]
    density = "" if first["density"] is None else f", {density_text(first['density'])} facts a token"
    shown = ", the question shown to what decides importance" if first["importance"] == "aware" else ""
    asked = f"n {first['n']} and {first['second_n']} a row"
    return f"{first['task']}, {first['context']} tokens{density}, seed {first['seed']}{shown}; {asked}"


def _table(group: Sequence[Row]) -> Table:
    full = next((row["bytes"] for row in group if row["policy"] == "full"), None)
    best = {id(row) for row in front([row for row in group if not row["control"]])}
    return Table(_heading(group), COLUMNS, UNITS, tuple(_cells(row, full, id(row) in best) for row in group))


def _cells(row: Row, full: float | None, best: bool) -> tuple[Cell, ...]:
    return (
        way(row),
        row["block"],
        row["accuracy"],
        f"{100 * row['low']:.1f}-{100 * row['high']:.1f}",
        row["second_accuracy"],
        f"{row['nll']:.3f}",
        f"{row['margin_p5']:.2f}",
        f"{row['kl']:.4f}",
        row["bytes"],
        row["bytes"] / full if full else None,
        "*" if best else "",
    )


def _plot(group: Sequence[Row]) -> Plot:
    shown = [row for row in group if not row["control"]]
    lines = [Series("front", *_points(front(shown)))]
    for name in dict.fromkeys(family(row) for row in shown):
        lines.append(Series(name, *_points([row for row in shown if family(row) == name])))
    return Plot(f"Accuracy against bytes: {_heading(group)}", "MiB of KV a context", "accuracy", "ratio", tuple(lines))


def _points(rows: Sequence[Row]) -> tuple[tuple[float, ...], tuple[float | None, ...]]:
    ordered = sorted(rows, key=lambda row: row["bytes"])
    return tuple(row["bytes"] / 2**20 for row in ordered), tuple(row["accuracy"] for row in ordered)


def _quantities(rows: Sequence[Row]) -> Iterator[Quantity]:
    for row in rows:
        name = (
            f"{row['task']}.{row['context']}.{density_text(row['density'])}.b{row['block']}.s{row['seed']}.{way(row)}"
        )
        for turn, prefix in (("", ""), ("second_turn.", "second_")):
            half = (row[f"{prefix}high"] - row[f"{prefix}low"]) / 2
            yield Quantity(f"{turn}accuracy.{name}", row[f"{prefix}accuracy"], "ratio", half, "higher")
        yield Quantity(f"margin_p5.{name}", row["margin_p5"], "", None, "higher")
        yield Quantity(f"kl.{name}", row["kl"], "", None, "lower")
        yield Quantity(f"bytes.{name}", row["bytes"], "B", 0.0, "lower")
