"""TensorRT-LLM's iteration statistics: a JSON list that is emptied by reading it.

One entry an iteration since the last reader came, so counters here count what this reader was given: what another
poller of the same address took is lost to us, and what we take is lost to it. Empty unless ``enable_iter_perf_stats``
is on. Read in TensorRT-LLM's source and documentation; not tried on a running server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kvscope.errors import SourceError
from kvscope.sources import maps
from kvscope.sources._page import PageResult
from kvscope.sources.identity import Seen
from kvscope.sources.mapping import json_number
from kvscope.sources.settings import Settings
from probes import border
from probes.sample import Sample, labels_of

DRAINS = (
    "these statistics are emptied by reading: another poller of this address gets what kvscope did not take, "
    "and the other way round"
)
EMPTY = "no iteration in the list: nothing ran, another poller took them, or enable_iter_perf_stats is off"
_LIMIT = 1_000_000
"""Iterations taken from one answer at most: at a thousand a second, a quarter of an hour that nobody read."""


def looks_iterations(start: bytes) -> bool:
    """Whether a saved text holds such a list, or one entry a line, near its start; words may stand around them."""
    return any(mark in start[:20_000] for mark in (b'"iterLatencyMS"', b'"inflightBatchingStats"', b'"kvCacheStats"'))


def is_iterations(text: str) -> bool:
    """Whether an answer is a JSON list, as no metrics page is."""
    return text.lstrip()[:1] == "["


class IterationReader:
    """Reads lists of iterations into the samples a page would give: gauges of the last one, counters of all."""

    def __init__(self) -> None:
        self.engine = maps.load("tensorrt_llm")
        self.flags: dict[str, str] = {}
        self.settings = Settings("tensorrt-llm")
        self.tags: dict[str, str] = {"engine": self.engine.ENGINE}
        self._counters: dict[str, float] = {
            "batch.steps": 0.0,
            "time.step": 0.0,
            "time.prefill": 0.0,
            "tokens.generated": 0.0,
        }
        self._gauges: dict[str, float] = {}
        self._last_iteration = -1.0
        self._said: set[str] = set()

    def read(self, text: str, t: float, side: Mapping[str, float] | None = None) -> PageResult:
        """Return the samples of what was drained at ``t``; an answer that is no such list is told and skipped."""
        result = PageResult()
        self._say(DRAINS, result)
        try:
            entries = list(entries_of(text))
        except ValueError as error:
            self._say(f"not the iteration statistics: {error}", result)
            entries = []
        if not entries:
            self._say(EMPTY, result)
        for entry in entries:
            iteration = _number(entry, "iter")
            if iteration is not None:
                # The iteration's number starts again with the engine.
                if iteration < self._last_iteration:
                    result.seen = Seen.RESTARTED
                self._last_iteration = iteration
            self._count(entry)
        if entries:
            self._gauges = _gauges(entries[-1])
        if result.restarted:
            result.notices.append("the engine restarted: iterations are numbered from the start again")
        result.samples = [Sample(metric, value, t) for metric, value in (self._counters | self._gauges).items()]
        result.samples.append(Sample("engine.info", 1.0, t, labels_of(engine=self.engine.ENGINE)))
        return result

    def missing(self, samples: object) -> list[str]:
        """Nothing: what the list holds depends on flags that ``EMPTY`` names."""
        return []

    def _say(self, notice: str, result: PageResult) -> None:
        if notice not in self._said:
            self._said.add(notice)
            result.notices.append(notice)

    def _count(self, entry: Mapping[str, Any]) -> None:
        batch, per_step = _part(entry, "inflightBatchingStats"), _part(entry, "kvCacheIterationStats")
        decoding = _number(batch, "numGenRequests") or 0.0
        each = _number(batch, "avgNumDecodedTokensPerIter") or 1.0
        prompt, generated = _number(batch, "numCtxTokens") or 0.0, decoding * max(1.0, each)
        # Ranks that share out requests each write an entry of the same iteration: its time counts once.
        if not _number(entry, "attentionDpRank"):
            self._steps(_number(entry, "iterLatencyMS"), prompt, generated)
        # Computed: every decoding request gets one token an iteration, more with speculative decoding.
        self._add("tokens.generated", generated)
        self._add("tokens.prefilled", _number(batch, "numCtxTokens"))
        self._add("tier.bytes_in", _number(per_step, "iterOnboardBytes"))
        self._add("tier.bytes_out", _number(per_step, "iterOffloadBytes"))

    def _steps(self, took_ms: float | None, prompt: float, generated: float) -> None:
        self._add("batch.steps", 1.0)
        self._add("time.step", took_ms, 1e-3)
        self._add("batch.tokens_per_step.count", 1.0)
        self._add("batch.tokens_per_step.sum", prompt + generated)
        if prompt > generated:
            # An iteration that does both counts whole as what most of its tokens are, as in a trace.
            self._add("time.prefill", took_ms, 1e-3)
        elif generated:
            self._add("batch.decode_steps", 1.0)
            self._add("latency.step.count", 1.0)
            self._add("latency.step.sum", took_ms, 1e-3)

    def _add(self, metric: str, value: float | None, scale: float = 1.0) -> None:
        if value is not None and value >= 0:
            self._counters[metric] = self._counters.get(metric, 0.0) + value * scale


def entries_of(text: str) -> Iterator[Mapping[str, Any]]:
    """Yield the iterations of a list. ValueError where it is none."""
    try:
        found = border.document(text, "the list")
    except border.Refused as error:
        raise ValueError("no JSON") from error
    if not isinstance(found, list):
        raise ValueError("expected a list of iterations")
    for entry in found[:_LIMIT]:
        if isinstance(entry, dict):
            yield entry


def _gauges(entry: Mapping[str, Any]) -> dict[str, float]:
    """Return the state at the end of an iteration; blocks are counted in tokens too."""
    batch, cache = _part(entry, "inflightBatchingStats"), _part(entry, "kvCacheStats")
    found = {
        "sched.running": _number(batch, "numScheduledRequests"),
        "sched.waiting": _number(entry, "numQueuedRequests"),
        "sched.paused": _number(batch, "numPausedRequests"),
        "sched.max_running": _number(entry, "maxBatchSizeRuntime"),
        "kv.capacity_blocks": _number(cache, "maxNumBlocks"),
        "kv.used_blocks": _number(cache, "usedNumBlocks"),
        "kv.block_size": _number(cache, "tokensPerBlock"),
    }
    known = {metric: value for metric, value in found.items() if value is not None}
    blocks, size = known.get("kv.capacity_blocks"), known.get("kv.block_size")
    if blocks and size:
        known["kv.capacity_tokens"] = blocks * size
        if "kv.used_blocks" in known:
            known["kv.used_tokens"] = known["kv.used_blocks"] * size
            known["kv.usage_ratio"] = known["kv.used_blocks"] / blocks
    # Blocks reused and missed are counted since the engine started, like a page's counters.
    reused, missed = _number(cache, "reusedBlocks"), _number(cache, "missedBlocks")
    if reused is not None and missed is not None and size:
        known |= {"prefix.hits": reused * size, "prefix.queries": (reused + missed) * size}
    return known


def _part(entry: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = entry.get(name)
    return found if isinstance(found, dict) else {}


def _number(entry: Mapping[str, Any], name: str) -> float | None:
    return json_number(entry.get(name))


def iterations_or_error(text: str, where: str) -> IterationReader:
    """Return a reader for an answer that starts like one. SourceError when it is another list."""
    try:
        entries = list(entries_of(text))
    except ValueError as error:
        raise SourceError(f"{where}: a JSON answer, but not TensorRT-LLM's iteration statistics ({error})") from error
    known = ("iter", "kvCacheStats", "inflightBatchingStats", "iterLatencyMS")
    if entries and not any(name in entry for entry in entries for name in known):
        raise SourceError(f"{where}: a JSON list, but not of TensorRT-LLM's iterations (no iter, no kvCacheStats)")
    return IterationReader()
