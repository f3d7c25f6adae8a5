"""What llama.cpp's two benchmarks tell: llama-bench as JSON or as a table, llama-batched-bench's table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kvscope import kv_types
from kvscope.sources.stated.result import Number, Result, number_at

_LLAMA_TEST = re.compile(r"(?:(pp) ?(\d{1,9}))?(?:\+?(tg) ?(\d{1,9}))?(?: @ d(\d{1,9}))?")
_SPEED = re.compile(r"(\d+(?:\.\d+)?)(?:\s*±\s*(\d+(?:\.\d+)?))?")


def of_table(head: list[str], rows: list[list[str]]) -> list[Result]:
    """Read a table of either; no run where it is of neither."""
    return _batched(head, rows) if "S_TG t/s" in head else _llama_table(head, rows)


def of_rows(rows: list[Any]) -> list[Result]:
    """Read llama-bench's JSON: a run each where its KV types, layers on the device or attention differ."""
    runs: dict[str, Result] = {}
    known = [row for row in rows[:2000] if isinstance(row, dict)]
    varied = [name for name in _LLAMA_OPTIONS if len({str(row.get(name)) for row in known if name in row}) > 1]
    for row in known:
        speed, spread = number_at(row, "avg_ts"), number_at(row, "stddev_ts")
        samples = row.get("samples_ts")
        count = len(samples) if isinstance(samples, list) and samples else 5
        if speed is None or speed <= 0:
            continue
        name = ", ".join(f"{option} {row.get(option)}" for option in varied)[:120]
        found = runs.setdefault(name, Result("llama-bench", {"engine": "llama.cpp"}, name=name))
        error = 2 * spread / count**0.5 if spread is not None else None
        prompt, generated, depth = (number_at(row, name) or 0.0 for name in ("n_prompt", "n_gen", "n_depth"))
        _llama_speed(found, prompt, generated, depth, speed, error)
        _llama_kv(found, row)
        for told, tag in (("model_type", "model"), ("gpu_info", "device")):
            if isinstance(row.get(told), str) and row[told]:
                found.tags.setdefault(tag, row[told][:120])
    return list(runs.values())


_LLAMA_OPTIONS = ("type_k", "type_v", "flash_attn", "fa", "n_gpu_layers", "ngl", "no_kv_offload", "nkvo", "model")
"""Options by which runs of one table differ, in llama-bench's JSON and as heads of its tables."""


def _llama_kv(found: Result, row: Mapping[str, Any]) -> None:
    """Take the KV's bits of a row: f16 is what llama-bench does not print in a table."""
    if "type_k" not in row and "type_v" not in row:
        return
    kinds = [kv_types.find(str(row.get(name, "f16")).strip()) for name in ("type_k", "type_v")]
    bits = [kind.bits() for kind in kinds if kind is not None]
    told = [one for one in bits if one is not None]
    if len(told) == 2:
        found.means["config.kv_bits"] = sum(told) / 2


def _llama_speed(
    found: Result, prompt: float, generated: float, depth: float, speed: float, error: float | None
) -> None:
    behind = f"_d{depth:g}" if depth else ""
    if prompt and not generated:
        found.numbers.append(Number(f"pp{prompt:g}{behind}_tokens_per_s", speed, "1/s", error, "higher"))
        found.means.setdefault("tokens.prompt", speed)
    elif generated and not prompt:
        found.numbers.append(Number(f"tg{generated:g}{behind}_tokens_per_s", speed, "1/s", error, "higher"))
        found.means.setdefault("tokens.generated", speed)
        found.means.setdefault("latency.tpot", 1.0 / speed)


def _llama_table(head: list[str], rows: list[list[str]]) -> list[Result]:
    lower = [name.lower() for name in head]
    speeds = [index for index, name in enumerate(lower) if name == "t/s" or name.startswith("t/s ")]
    if not speeds or "test" not in lower:
        return []
    test = lower.index("test")
    varied = [
        index
        for index, name in enumerate(lower)
        if name in _LLAMA_OPTIONS and len({row[index] for row in rows}) > 1 and len(speeds) == 1
    ]
    runs: dict[str, Result] = {}
    for row in rows[:2000]:
        shape = _LLAMA_TEST.fullmatch(row[test])
        for index in speeds:
            speed = _SPEED.match(row[index])
            if shape is None or speed is None or float(speed[1]) <= 0:
                continue
            name = ", ".join(f"{head[one]} {row[one]}" for one in varied) or f"{head[index]} {index}"[:80]
            found = runs.setdefault(name, Result("llama-bench", {"engine": "llama.cpp"}, name=name))
            error = 2 * float(speed[2]) / 5**0.5 if speed[2] else None
            sizes = float(shape[2] or 0), float(shape[4] or 0), float(shape[5] or 0)
            _llama_speed(found, *sizes, float(speed[1]), error)
            _llama_kv(found, dict(zip(lower, row, strict=True)))
            if "model" in lower:
                found.tags.setdefault("model", row[lower.index("model")][:120])
    return list(runs.values())


def _batched(head: list[str], rows: list[list[str]]) -> list[Result]:
    """Read llama-batched-bench's row of the largest batch: so many requests decode side by side."""
    known: list[dict[str, float]] = []
    for row in rows[:2000]:
        cells = {name: _SPEED.fullmatch(text) for name, text in zip(head, row, strict=True)}
        known.append({name: float(cell[1]) for name, cell in cells.items() if cell is not None})
    whole = [{"B": 1.0, **row} for row in known if {"PP", "TG", "S_TG t/s"} <= row.keys() and row["TG"] > 0]
    if not whole:
        return []
    # A sweep's rows (ik_llama.cpp) have no batch: they differ by what is held before the prompt.
    swept = "B" not in known[0]
    most = max(whole, key=lambda one: (one["B"], one["PP"], one.get("N_KV", 0.0)))
    found = Result("llama-batched-bench", {"engine": "llama.cpp", "offered_load": f"{most['B']:g} clients"})
    found.rate("generation_tokens_per_s", "tokens.generated", most["S_TG t/s"])
    found.rate("prompt_tokens_per_s", "tokens.prompt", most.get("S_PP t/s"))
    held = most.get("N_KV", 0.0) if swept else 0.0
    found.means |= {
        "sched.running": most["B"],
        "request.tokens_in": held + most["PP"],
        "request.tokens_out": most["TG"],
    }
    if "T_TG s" in most:
        found.means["latency.tpot"] = most["T_TG s"] / most["TG"]
        found.numbers.append(Number("tpot_mean_s", most["T_TG s"] / most["TG"], "s", None, "lower"))
    return [found]
