"""A vLLM page of a server that waits behind its cap for a chosen share of the time; everything else stays as captured.

Counters grow as they grew in the capture, gauges stand, and the number of waiting requests is drawn for each reading.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

from kvscope.sources._page import PageReader
from kvscope.sources.maps import vllm
from kvscope.sources.source import Description, Poll
from probes.sample import Sample

CAPTURE = Path(__file__).parents[1] / "samples/captures/admission-limited/pages.jsonl.gz"
START_S = 1_795_957_100.0
BOUND = 0.25
"""Of the rule admission-capped: the share of the time in which the cap holds requests back."""
_GAUGES = ("python_info", "process_", "vllm:cache_config_info", "vllm:num_requests", "vllm:kv_cache", "vllm:engine_")


class Server:
    """``share(t)``: the chance that requests wait at ``t`` seconds after the start. One seed, one history."""

    def __init__(self, share: Callable[[float], float], seed: int = 1) -> None:
        with gzip.open(CAPTURE, "rt") as file:
            rows = [json.loads(line) for line in file]
        early, late = rows[5], rows[-3]
        self._share, self._rng = share, random.Random(seed)
        self._lines = list(_growing(early["text"], late["text"], late["t"] - early["t"]))

    def page(self, t: float) -> str:
        """The page at ``t`` seconds after the start."""
        waiting = 4.0 if self._rng.random() < self._share(t) else 0.0
        return "\n".join(
            line if slope is None else _at(line, value, slope, t, waiting) for line, value, slope in self._lines
        )


def _growing(early: str, late: str, seconds: float) -> Iterator[tuple[str, float, float | None]]:
    """Each line's name and labels, value, and growth a second (None: a comment, kept as it is)."""
    after = dict(line.rsplit(" ", 1) for line in late.splitlines() if line and line[0] != "#")
    for line in early.splitlines():
        if not line.startswith(("vllm:", "#")) or "_created" in line:
            continue
        if line.startswith("#"):
            yield line, 0.0, None
            continue
        name, value = line.rsplit(" ", 1)
        grows = 0.0 if name.startswith(_GAUGES) else (float(after[name]) - float(value)) / seconds
        yield name, float(value), grows


def _at(name: str, value: float, slope: float, t: float, waiting: float) -> str:
    if name.startswith("vllm:num_requests_waiting") and 'reason="deferred"' not in name:
        value = waiting
    return f"{name} {value + slope * t}"


class PageSource:
    """The server, read once a second of a clock that ``poll`` turns."""

    def __init__(self, server: Server) -> None:
        self._server, self._reader, self.t = server, PageReader(vllm), 0.0

    def describe(self) -> Description:
        return Description("vllm", "http://server", "vllm")

    def poll(self) -> Poll:
        self.t += 1.0
        samples: list[Sample] = self._reader.read(self._server.page(self.t), START_S + self.t).samples
        return Poll(samples)

    def close(self) -> None:
        """Nothing is held open."""
