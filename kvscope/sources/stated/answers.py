"""Answers of a server's API as its client kept them, a JSON object a line, and the table that ``ollama ps`` prints.

Ollama's final answer carries counts and durations in nanoseconds (api/types.go of fb3076099: ``prompt_eval_count``,
``prompt_eval_duration``, ``eval_count``, ``eval_duration``); llama.cpp's carries ``timings`` in milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
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
    r"^(?P<name>\S+)\s+[0-9a-f]{12}\s+(?P<size>\d+(?:\.\d+)?) (?P<unit>[KMGT]i?B)\s+\S+(?: \S+)?\s+(?P<ctx>\d+)?"
)
_NO_TIMES = "no answer says when it came: each is taken to follow the one before; order and durations are right"


def looks_answers(start: bytes) -> bool:
    """Whether a text starts as kept answers or an ``ollama ps`` table do."""
    return b'"eval_count"' in start or b'"predicted_per_second"' in start or _head_of_ps(start)


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
        table = _head_of_ps(read_text(path)[:400].encode())
        self._samples = list(self._table() if table else self._answers())
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

    def _answers(self) -> Iterator[Sample]:
        t, untimed = self._path.stat().st_mtime - 3600.0, False
        totals: dict[str, float] = {}
        for _, line in JsonLines(self._path):
            figures = _figures(line)
            if not figures:
                continue
            if "timings" in line:
                self._engine = "llama.cpp"
            if isinstance(line.get("model"), str):
                self._tags["model"] = border.printable(line["model"], 120)
            told = time_of(str(line.get("created_at", "")))
            untimed = untimed or told is None
            t = max(t, told) if told is not None else t + figures["took"]
            yield from self._samples_of(figures, totals, t)
        if untimed:
            self._dated = False
            self._notices.append(_NO_TIMES)

    def _samples_of(self, figures: dict[str, float], totals: dict[str, float], t: float) -> Iterator[Sample]:
        counts = {
            "requests.finished": 1.0,
            "tokens.generated": figures["out"],
            "tokens.prefilled": figures["computed"],
            "time.prefill_requests": figures["prefill_s"],
            "time.decode_requests": figures["decode_s"],
        }
        for metric, by in counts.items():
            if metric not in totals:
                totals[metric] = 0.0
                yield Sample(metric, 0.0, t - figures["took"])
            totals[metric] += by
            yield Sample(metric, totals[metric], t)
        yield Sample("request.tokens_computed", figures["computed"], t)
        yield Sample("request.tokens_out", figures["out"], t)
        yield Sample("latency.prefill_time", figures["prefill_s"], t)
        yield Sample("latency.decode_time", figures["decode_s"], t)
        if figures["out"] > 0:
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
            yield Sample("gpu.mem_used", float(matched["size"]) * _SIZES[matched["unit"]], t, (("gpu", "0"),))
            if matched["ctx"]:
                yield Sample("config.max_context", float(matched["ctx"]), t)
            yield Sample("engine.info", 1.0, t, labels_of(engine="ollama"))
        self._dated = False
        self._notices.append("no print says when it was made: taken as a minute apart; the order is right")


def _figures(line: dict[str, Any]) -> dict[str, float]:
    """Return counts and seconds of one answer; nothing where it has none."""

    def get(where: dict[str, Any], name: str) -> float:
        try:
            return border.number(where.get(name, 0), name, 0.0)
        except border.Refused:
            return 0.0

    timings = line.get("timings")
    if isinstance(timings, dict):
        found = {
            "computed": get(timings, "prompt_n"),
            "out": get(timings, "predicted_n"),
            "prefill_s": get(timings, "prompt_ms") / 1e3,
            "decode_s": get(timings, "predicted_ms") / 1e3,
        }
    elif "eval_count" in line:
        found = {
            "computed": get(line, "prompt_eval_count"),
            "out": get(line, "eval_count"),
            "prefill_s": get(line, "prompt_eval_duration") / 1e9,
            "decode_s": get(line, "eval_duration") / 1e9,
        }
    else:
        return {}
    found["took"] = found["prefill_s"] + found["decode_s"]
    return found if found["took"] > 0 else {}
