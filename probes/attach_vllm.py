"""A stat logger for vLLM that writes every step to the server's flight recorder.

Installed beside vLLM it is found by itself (entry point group ``vllm.stat_logger_plugins``); ``VLLM_PLUGINS`` chooses
among plugins. It adds to the metrics page: every step instead of a scrape a second, the limit that bound each step,
KV in bytes, evicted blocks one by one (``--kv-cache-metrics``), step times (``--enable-logging-iteration-details``).
It never breaks the engine: on a version it does not know it logs one line and steps aside.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probes.recorder import Recorder, Sink, step_columns
from probes.ring import RingWriter
from probes.vllm_geometry import Geometry, Shape

COUNTERS = (
    *("batch.steps", "tokens.generated", "tokens.prompt", "tokens.prefilled", "prefix.queries", "prefix.hits"),
    *("requests.finished", "sched.preemptions", "sched.kv_bound_steps", "sched.cap_bound_steps"),
    "sched.deferred_steps",
)
DETAILS = ("time.step", "time.prefill", "time.decode", "batch.decode_steps", "sched.budget_bound_steps")
"""Counters that need ``--enable-logging-iteration-details``; without it there is no column for them."""

EVICTIONS = ("cache.evictions",)
"""Needs ``--kv-cache-metrics``, which watches a sample of the blocks: an estimate, each of them stands for others."""

GAUGES = (
    *("sched.running", "sched.waiting", "sched.deferred", "sched.max_running", "kv.usage_ratio", "kv.used_blocks"),
    *("kv.capacity_blocks", "kv.block_size", "kv.capacity_tokens", "kv.resident_bytes", "kv.reserved_bytes"),
    *("kv.bytes_per_token_assumed", "batch.tokens_per_step"),
)
LAYER_METRICS = ("kv.bytes_per_layer",)
REQUEST_COLUMNS = (
    *("t", "latency.ttft", "latency.tpot", "latency.e2e", "sched.queue_time", "latency.prefill_time"),
    *("latency.decode_time", "request.tokens_in", "request.tokens_out", "request.preemptions", "request.prefix_hits"),
    *("block.lifetime", "block.idle", "block.reuse_gap"),
)
"""A row is a finished request, or a block that was evicted (``--kv-cache-metrics``): the other's columns are NaN."""

FULL = 0.95
"""KV usage from which a waiting request is taken to wait for blocks where vLLM does not say what a step computed."""

_NAN = float("nan")


@dataclass(frozen=True, slots=True)
class Limits:
    """What the scheduler may do in a step, as configured: requests, tokens."""

    requests: int
    tokens: int


def columns(layers: int, details: bool, evictions: bool = False) -> list[str]:
    """Columns of a step row; ``details``: vLLM tells what each step computed; ``evictions``: it watches blocks."""
    counters = (*COUNTERS, *(DETAILS if details else ()), *(EVICTIONS if evictions else ()))
    return step_columns((*counters, *GAUGES), LAYER_METRICS, layers)


class VllmRows:
    """Writes a step row for every step of any of ``engines`` engines, numbers of all of them together.

    ``watched``: the share of blocks whose eviction vLLM tells of, 0 for none.
    """

    def __init__(
        self,
        sink: Sink,
        limits: Limits,
        geometry: Geometry,
        engines: Sequence[int],
        details: bool,
        watched: float = 0.0,
    ) -> None:
        names = columns(geometry.layers, details, watched > 0)
        self._recorder = Recorder(sink, names, REQUEST_COLUMNS)
        self._limits, self._geometry, self._details, self._watched = limits, geometry, details, watched
        self._latest: dict[int, Any] = {}
        self._told: tuple[float, Shape] | None = None
        self._engines = max(1, len(engines))
        for name in names:
            if name not in (*COUNTERS, *DETAILS, *EVICTIONS, "t"):
                self._recorder.set(name, _NAN)

    def record(self, scheduler: Any, iteration: Any, engine: int) -> None:
        """Take what one step of one engine reported. AttributeError where this vLLM names things otherwise."""
        if iteration is not None:
            self._work(iteration)
        if scheduler is not None:
            self._state(scheduler, iteration, engine)
            self._recorder.commit()
        for request in iteration.finished_requests if iteration is not None else ():
            self._recorder.finish_request(_request_row(request))
        for event in getattr(scheduler, "kv_cache_eviction_events", None) or ():
            self._recorder.finish_request(_block_row(event))

    def _work(self, iteration: Any) -> None:
        add = self._recorder.add
        add("tokens.generated", iteration.num_generation_tokens)
        add("tokens.prompt", iteration.num_prompt_tokens)
        add("tokens.prefilled", getattr(getattr(iteration, "prompt_token_stats", None), "computed", 0))
        add("sched.preemptions", iteration.num_preempted_reqs)
        add("requests.finished", len(iteration.finished_requests))

    def _state(self, scheduler: Any, iteration: Any, engine: int) -> None:
        add, put = self._recorder.add, self._recorder.set
        before, self._latest[engine] = self._latest.get(engine), scheduler
        now = list(self._latest.values())
        add("batch.steps", 1)
        put("sched.running", sum(one.num_running_reqs for one in now))
        put("sched.waiting", sum(one.num_waiting_reqs for one in now))
        put("sched.deferred", sum(getattr(one, "num_skipped_waiting_reqs", _NAN) for one in now))
        put("sched.max_running", self._limits.requests * self._engines)
        prefix = scheduler.prefix_cache_stats
        if prefix is not None:
            add("prefix.queries", prefix.queries)
            add("prefix.hits", prefix.hits)
        if self._watched:
            add("cache.evictions", len(getattr(scheduler, "kv_cache_eviction_events", None) or ()) / self._watched)
        self._memory(sum(one.kv_cache_usage for one in now) / len(now))
        self._step_details(scheduler)
        limit = binding(scheduler, before, getattr(iteration, "num_preempted_reqs", 0), self._limits)
        if limit and (limit != "sched.budget_bound_steps" or self._details):
            add(limit, 1)

    def _memory(self, usage: float) -> None:
        shape = self._geometry.now(self._engines)
        if (usage, shape) == self._told:
            return
        self._told, put = (usage, shape), self._recorder.set
        put("kv.usage_ratio", usage)
        put("kv.used_blocks", usage * shape.blocks)
        put("kv.capacity_blocks", shape.blocks)
        put("kv.block_size", shape.block_tokens)
        put("kv.capacity_tokens", shape.capacity_tokens)
        put("kv.reserved_bytes", shape.pool_bytes)
        put("kv.resident_bytes", usage * shape.pool_bytes)
        put("kv.bytes_per_token_assumed", shape.bytes_per_token)
        self._recorder.set_layers(
            "kv.bytes_per_layer", [usage * shape.pool_bytes / shape.layers for _ in range(shape.layers)]
        )

    def _step_details(self, scheduler: Any) -> None:
        details = getattr(scheduler, "iteration_details", None)
        if not self._details or details is None:
            return
        add, seconds = self._recorder.add, details.elapsed_ms / 1000
        prefill = details.num_ctx_tokens > details.num_generation_tokens
        add("time.step", seconds)
        # A step that does both counts whole as what most of its tokens are.
        add("time.prefill" if prefill else "time.decode", seconds)
        add("batch.decode_steps", not prefill)
        self._recorder.set("batch.tokens_per_step", details.num_ctx_tokens + details.num_generation_tokens)


def binding(scheduler: Any, before: Any, preempted: int, limits: Limits) -> str:
    """Return the counter of the limit that kept a request from running in this step, or the empty string.

    A request that waits at the end of a step may have come during it: only one that waited at the end of the step
    before as well was there to be admitted.
    """
    if preempted:
        return "sched.kv_bound_steps"
    details: Any = getattr(scheduler, "iteration_details", None)
    waited = before is not None and scheduler.num_waiting_reqs > 0 and before.num_waiting_reqs > 0
    computed = details.num_ctx_tokens + details.num_generation_tokens if details is not None else 0
    if 0 < limits.tokens <= computed and scheduler.num_waiting_reqs + details.num_ctx_requests:
        return "sched.budget_bound_steps"
    # Those that ended in this step ran in it.
    if waited and 0 < limits.requests <= max(scheduler.num_running_reqs, before.num_running_reqs):
        return "sched.cap_bound_steps"
    if waited and (scheduler.kv_cache_usage >= FULL or (_let_nobody_in(scheduler) and _let_nobody_in(before))):
        # Neither requests nor tokens were at their limit, twice: a prompt has to fit whole, so blocks run out well
        # below full. Once is no proof: a place that became free in a step is given away in the next.
        return "sched.kv_bound_steps"
    deferred = getattr(scheduler, "num_skipped_waiting_reqs", 0)
    return "sched.deferred_steps" if deferred and not scheduler.num_waiting_reqs else ""


def _let_nobody_in(scheduler: Any) -> bool:
    details = getattr(scheduler, "iteration_details", None)
    return details is not None and not details.num_ctx_requests


def _request_row(request: Any) -> dict[str, float]:
    row = dict.fromkeys(REQUEST_COLUMNS, _NAN)
    return row | {
        "t": time.monotonic(),
        # Arrival is known to the front end, tokens to the engine: what is left of the whole is the first token's.
        "latency.ttft": request.e2e_latency - request.decode_time,
        "latency.tpot": request.mean_time_per_output_token if request.num_generation_tokens > 1 else _NAN,
        "latency.e2e": request.e2e_latency,
        "sched.queue_time": request.queued_time,
        "latency.prefill_time": request.prefill_time,
        "latency.decode_time": request.decode_time,
        "request.tokens_in": request.num_prompt_tokens,
        "request.tokens_out": request.num_generation_tokens,
        "request.preemptions": getattr(request, "num_preemptions", _NAN),
        "request.prefix_hits": getattr(request, "num_cached_tokens", _NAN),
    }


def _block_row(event: Any) -> dict[str, float]:
    gaps = event.reuse_gaps_seconds
    return dict.fromkeys(REQUEST_COLUMNS, _NAN) | {
        "t": time.monotonic(),
        "block.lifetime": event.lifetime_seconds,
        "block.idle": event.idle_seconds,
        "block.reuse_gap": sum(gaps) / len(gaps) if gaps else _NAN,
    }


_log = logging.getLogger("vllm.kvscope")
MakeSink = Callable[[dict[str, Any], list[str]], Sink]
_recording: list[Watch] = []
"""The watch that writes this process's flight recorder: there is one file, so one writer."""


class Watch:
    """What the stat logger does, apart from vLLM's base class; after ``step_aside`` it does nothing."""

    def __init__(self, config: Any, engines: Sequence[int], make_sink: MakeSink | None = None) -> None:
        self._rows: VllmRows | None = None
        self._sink: Sink | None = None
        try:
            self._start(config, engines, make_sink or _ring)
        except Exception as error:
            self.step_aside(error)

    @property
    def active(self) -> bool:
        """Whether rows are being written."""
        return self._rows is not None

    def record(self, scheduler: Any, iteration: Any, engine: int) -> None:
        """Take one step's statistics."""
        if self._rows is None:
            return
        try:
            self._rows.record(scheduler, iteration, engine)
        except Exception as error:
            self.step_aside(error)

    def step_aside(self, why: Exception) -> None:
        """Say once why nothing more is recorded."""
        version = getattr(sys.modules.get("vllm"), "__version__", "of unknown version")
        _log.warning("kvscope stepped aside, vLLM %s is not recorded: %s: %s", version, type(why).__name__, why)
        self._rows = None
        with contextlib.suppress(Exception):
            self.close()

    def close(self) -> None:
        """End the recorder in good order; its file stays."""
        if self in _recording:
            _recording.remove(self)
        if isinstance(self._sink, RingWriter):
            self._sink.close()

    def _start(self, config: Any, engines: Sequence[int], make_sink: MakeSink) -> None:
        if _recording:
            raise RuntimeError("another engine of this process is recorded already")
        scheduler, geometry = config.scheduler_config, Geometry(config)
        told = config.observability_config
        details = bool(getattr(told, "enable_logging_iteration_details", False))
        on = getattr(told, "kv_cache_metrics", False)
        watched = float(getattr(told, "kv_cache_metrics_sample", 1.0)) if on else 0.0
        tokens = getattr(scheduler, "max_num_scheduled_tokens", None) or scheduler.max_num_batched_tokens
        limits = Limits(int(scheduler.max_num_seqs), int(tokens))
        header = {
            "engine": "vllm",
            "version": str(getattr(sys.modules.get("vllm"), "__version__", "")),
            "model": Path(str(config.model_config.model)).name,
            "device": str(getattr(config.device_config, "device_type", "")),
            "dtype": str(config.model_config.dtype).removeprefix("torch."),
            "kv_groups": geometry.groups,
            "limits": {"requests": limits.requests, "tokens": limits.tokens},
        }
        self._sink = make_sink(header, columns(geometry.layers, details, watched > 0))
        self._rows = VllmRows(self._sink, limits, geometry, engines, details, watched)
        _recording.append(self)
        atexit.register(self.close)


def _ring(header: dict[str, Any], names: list[str]) -> Sink:
    return RingWriter(header, names, REQUEST_COLUMNS)


def __getattr__(name: str) -> Any:
    """Make ``StatLogger`` when vLLM asks for it: only then is there a base class to derive from."""
    if name != "StatLogger":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = _stat_logger()
    return found


def _stat_logger() -> type:
    from vllm.v1.metrics import loggers

    # Of several engines behind one server an aggregate logger sees all; versions without one make a logger for each.
    base: Any = getattr(loggers, "AggregateStatLoggerBase", None) or loggers.StatLoggerBase

    class StatLogger(base):  # type: ignore[misc]
        """vLLM's interface; anything it calls beyond ``record`` is answered by the base class, or ignored."""

        def __init__(
            self, vllm_config: Any, engine_indexes: Sequence[int] = (0,), engine_index: int = 0, **_: Any
        ) -> None:
            engines = engine_indexes if isinstance(engine_indexes, list | tuple) else (engine_indexes,)
            self._watch = Watch(vllm_config, engines)

        def record(
            self, scheduler_stats: Any = None, iteration_stats: Any = None, *_: Any, engine_idx: int = 0, **__: Any
        ) -> None:
            self._watch.record(scheduler_stats, iteration_stats, engine_idx)

        def log_engine_initialized(self) -> None:
            pass

        def log(self) -> None:
            pass

        def record_sleep_state(self, *_: Any, **__: Any) -> None:
            pass

    # A method that a later version makes abstract must not keep the engine from starting.
    StatLogger.__abstractmethods__ = frozenset()
    return StatLogger
