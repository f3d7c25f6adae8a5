"""Answers of a server's API as its client kept them, one JSON object or one a line, and what ollama prints of itself.

OpenAI's ``usage`` counts tokens (of vLLM, TensorRT-LLM, LMDeploy and the others, cached ones where they tell); SGLang's
``meta_info`` (0.5.23 managers/tokenizer_manager.py) carries latencies in seconds beside them. ``ollama ps`` is a table,
``ollama run --verbose`` a few lines after each answer. Ollama's final answer carries counts and durations in
nanoseconds (api/types.go of fb3076099: ``prompt_eval_count``, ``prompt_eval_duration``, ``eval_count``,
``eval_duration``); llama.cpp's carries ``timings`` in milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kvscope.errors import SourceError
from kvscope.sources._lines import JsonLines
from kvscope.sources.saved import read_text
from kvscope.sources.source import Description, Poll
from kvscope.sources.table import _time as time_of
from probes import border
from probes.sample import Sample, labels_of

_SIZES = {"KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KiB": 1024.0, "MiB": float(1 << 20), "GiB": float(1 << 30)}
_PS = re.compile(
    r"^(?P<name>\S+)\s+[0-9a-f]{12}\s+(?P<size>\d+(?:\.\d+)?) (?P<unit>[KMGT]i?B)\s+"
    r"(?:(?P<host>\d{1,3})%/)?(?P<share>\d{1,3})% (?P<where>\S+)\s+(?P<ctx>\d+)?"
)
_NO_TIMES = "no answer says when it came: each is taken to follow the one before; order and durations are right"


_MARKS = (
    (b'"eval_count"',),
    (b'"predicted_per_second"',),
    (b'"meta_info"', b'"completion_tokens"'),
    (b'"usage"', b'"completion_tokens"'),
    (b"eval count:", b"eval rate:"),
)


def looks_answers(start: bytes) -> bool:
    """Whether a text starts as kept answers or an ``ollama ps`` table do."""
    return any(all(mark in start for mark in marks) for marks in _MARKS) or _head_of_ps(start)


def _head_of_ps(start: bytes) -> bool:
    return start.lstrip().startswith(b"NAME") and b"PROCESSOR" in start[:200]


class AnswersSource:
    """Reads kept answers whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._engine = "ollama"
        self._tags: dict[str, str] = {}
        self._notices: list[str] = []
        self._dated = True
        start = read_text(path)[:20_000]
        if _head_of_ps(start[:400].encode()):
            self._samples = list(self._table())
        else:
            self._samples = list(self._answers(_printed(path) if "eval rate:" in start else _documents(path)))
        if not self._samples:
            raise SourceError(
                f"{path}: kept answers without counts or durations; expected eval_count, timings or a table"
            )

    def describe(self) -> Description:
        tags = {"engine": self._engine, **self._tags}
        return Description("answers", str(self._path), self._engine, tags=tags, dated=self._dated)

    def poll(self) -> Poll:
        samples, self._samples = self._samples, []
        return Poll(samples, notices=tuple(self._notices), ended=True)

    def close(self) -> None:
        """Nothing is held open."""

    def _answers(self, lines: Iterable[dict[str, Any]]) -> Iterator[Sample]:
        t, untimed = self._path.stat().st_mtime - 3600.0, False
        totals: dict[str, float] = {}
        for line in lines:
            figures = _figures(line)
            if not figures:
                continue
            if "eval_count" not in line:
                self._engine = "llama.cpp" if "timings" in line else "sglang" if "meta_info" in line else ""
            if isinstance(line.get("model"), str):
                self._tags["model"] = border.printable(line["model"], 120)
            told = time_of(str(line.get("created_at", line.get("created", ""))))
            untimed = untimed or told is None
            t = max(t, told) if told is not None else t + (figures["took"] or 1.0)
            yield from self._samples_of(figures, totals, t)
        if untimed:
            self._dated = False
            self._notices.append(_NO_TIMES)

    def _samples_of(self, figures: dict[str, float], totals: dict[str, float], t: float) -> Iterator[Sample]:
        began = t - (figures["took"] or 1.0)
        for name, metric in (("one", "requests.finished"), *_COUNTED):
            if name not in figures:
                continue
            if metric not in totals:
                totals[metric] = 0.0
                yield Sample(metric, 0.0, began)
            totals[metric] += figures[name]
            yield Sample(metric, totals[metric], t)
        for name, metric in _EACH:
            if name in figures:
                yield Sample(metric, figures[name], t)
        if figures["out"] > 0 and figures.get("decode_s"):
            yield Sample("latency.tpot", figures["decode_s"] / figures["out"], t)
        yield Sample("engine.info", 1.0, t, labels_of(engine=self._engine))

    def _table(self) -> Iterator[Sample]:
        """Yield the memory of each print of ``ollama ps``: a minute apart, since none says when it was made."""
        t = self._path.stat().st_mtime - 3600.0
        for line in read_text(self._path).splitlines():
            if line.startswith("NAME"):
                t += 60.0
            matched = _PS.match(line)
            if matched is None:
                continue
            self._tags["model"] = border.printable(matched["name"], 120)
            whole = float(matched["size"]) * _SIZES[matched["unit"]]
            on_device = 0.0 if matched["where"] == "CPU" else int(matched["share"]) / 100
            yield Sample("gpu.mem_used", whole * on_device, t, (("gpu", "0"),))
            yield Sample("config.share_on_host", 1.0 - on_device, t)
            if matched["ctx"]:
                yield Sample("config.max_context", float(matched["ctx"]), t)
            yield Sample("engine.info", 1.0, t, labels_of(engine="ollama"))
        self._dated = False
        self._notices.append("no print says when it was made: taken as a minute apart; the order is right")


_COUNTED = (
    ("out", "tokens.generated"),
    ("prompt", "tokens.prompt"),
    ("computed", "tokens.prefilled"),
    ("queries", "prefix.queries"),
    ("cached", "prefix.hits"),
    ("prefill_s", "time.prefill_requests"),
    ("decode_s", "time.decode_requests"),
)
_EACH = (
    ("prompt", "request.tokens_in"),
    ("computed", "request.tokens_computed"),
    ("out", "request.tokens_out"),
    ("prefill_s", "latency.prefill_time"),
    ("decode_s", "latency.decode_time"),
    ("ttft_s", "latency.ttft"),
    ("e2e_s", "latency.e2e"),
    ("queue_s", "sched.queue_time"),
)


def _documents(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file: one a line, or a document over many lines, alone or in a list."""
    text = read_text(path)
    if "\n" in text.strip():
        try:
            found = border.document(text, str(path))
        except border.Refused:
            found = None
        if isinstance(found, dict | list):
            yield from (one for one in (found if isinstance(found, list) else [found]) if isinstance(one, dict))
            return
    for _, line in JsonLines(path):
        yield line


_PRINTED = re.compile(
    r"^(?P<name>prompt eval count|prompt eval duration|eval count|eval duration):\s+(?P<value>\S+)", re.MULTILINE
)


def _printed(path: Path) -> Iterator[dict[str, Any]]:
    """Yield what ``ollama run --verbose`` prints after each answer, as its API would have said it."""
    found: dict[str, Any] = {}
    for matched in _PRINTED.finditer(read_text(path)):
        name = matched["name"].replace(" ", "_")
        if name in found:
            yield found
            found = {}
        value = _nanoseconds(matched["value"]) if "duration" in name else matched["value"]
        found[name] = float(value) if isinstance(value, float) or (value.isdecimal() and len(value) < 16) else 0.0
    if "eval_count" in found:
        yield found


def _nanoseconds(text: str) -> float:
    """Return Go's way to write a duration (``1m2.5s``, ``342.5ms``) in nanoseconds."""
    units = {"h": 3600e9, "m": 60e9, "s": 1e9, "ms": 1e6, "us": 1e3, "µs": 1e3, "ns": 1.0}
    parts = re.findall(r"(\d{1,15}(?:\.\d{1,15})?)(ms|us|µs|ns|h|m|s)", text)
    return sum(float(value) * units[unit] for value, unit in parts)


def _get(where: Mapping[str, Any], name: str) -> float | None:
    try:
        return border.number(where[name], name, 0.0) if name in where else None
    except border.Refused:
        return None


def _figures(line: Mapping[str, Any]) -> dict[str, float]:
    """Return counts and seconds of one answer; nothing where it has none."""
    timings, meta, usage = (line.get(name) for name in ("timings", "meta_info", "usage"))
    told: dict[str, float | None]
    if isinstance(timings, dict):
        told = {
            "computed": _get(timings, "prompt_n"),
            "out": _get(timings, "predicted_n"),
            "prefill_s": _scaled(_get(timings, "prompt_ms"), 1e-3),
            "decode_s": _scaled(_get(timings, "predicted_ms"), 1e-3),
        }
    elif "eval_count" in line:
        told = {
            "computed": _get(line, "prompt_eval_count") or 0.0,
            "out": _get(line, "eval_count"),
            "prefill_s": _scaled(_get(line, "prompt_eval_duration") or 0.0, 1e-9),
            "decode_s": _scaled(_get(line, "eval_duration") or 0.0, 1e-9),
        }
    elif isinstance(meta, dict):
        told = _counted(meta, _get(meta, "cached_tokens"))
        told |= {
            "e2e_s": _get(meta, "e2e_latency"),
            "ttft_s": _get(meta, "ttft_latency"),
            "queue_s": _get(meta, "queue_latency") if "queue_latency" in meta else _get(meta, "queue_time"),
        }
        if told["e2e_s"] is not None and told["ttft_s"] is not None:
            told["decode_s"] = max(0.0, told["e2e_s"] - told["ttft_s"])
    elif isinstance(usage, dict):
        details = usage.get("prompt_tokens_details")
        told = _counted(usage, _get(details, "cached_tokens") if isinstance(details, dict) else None)
    else:
        return {}
    found = {name: value for name, value in told.items() if value is not None}
    if "out" not in found or (not found.get("out") and not found.get("prompt") and not found.get("computed")):
        return {}
    found["took"] = found.get("e2e_s") or found.get("prefill_s", 0.0) + found.get("decode_s", 0.0)
    return {"one": 1.0, **found} if found["took"] > 0 or isinstance(usage, dict) or isinstance(meta, dict) else {}


def _counted(where: Mapping[str, Any], cached: float | None) -> dict[str, float | None]:
    prompt = _get(where, "prompt_tokens")
    # A request that was put back counts its cached tokens at every start: they are no more than its prompt.
    found = min(cached, prompt) if cached is not None and prompt is not None else None
    return {
        "prompt": prompt,
        "out": _get(where, "completion_tokens"),
        "queries": prompt if found is not None else None,
        "cached": found,
        "computed": prompt - found if prompt is not None and found is not None else None,
    }


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale
