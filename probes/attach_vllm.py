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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from probes.recorder import Sink
from probes.ring import RingWriter
from probes.vllm_geometry import Geometry
from probes.vllm_rows import REQUEST_COLUMNS, Limits, VllmRows, columns

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
