"""A measured cell as a row of the table, its names, and what rows are fit to be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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
