"""What an accuracy table shows, in sentences: each only where the rows it needs were measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvscope.bench._accuracy_rows import FULL_IS_RIGHT, SAME, Row, data, density_text, way

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
