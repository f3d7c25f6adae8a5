"""Watches a Hugging Face model from inside its process and writes to this process's flight recorder.

    from probes.attach_transformers import attach

    recorder = attach(model)
    model.generate(...)          # kvscope attach PID, or kvscope diagnose PID, from another terminal

Adds no work to the device and changes no result. Nothing is raised into the caller's code: on anything unexpected one
line is logged and the recorder steps aside. ``recorder.detach()`` takes it out again.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

from probes.generation import REQUEST_COLUMNS, Generation, prompt_length
from probes.model_rows import ModelRows, columns
from probes.recorder import Sink
from probes.ring import RingWriter

_log = logging.getLogger("kvscope")
_attached: list[TransformersRecorder] = []


def attach(model: Any, *, directory: Path | None = None, sink: Sink | None = None) -> TransformersRecorder:
    """Start recording a transformers model; one at a time in a process, since a process has one flight recorder.

    ``sink`` takes the rows instead (a list in tests), ``directory`` is another place for the recorder's file.
    """
    recorder = TransformersRecorder(model)
    if sink is None and _attached:
        recorder.step_aside("another model of this process is being recorded; detach that one first")
        return recorder
    try:
        layers = layer_count(model)
        recorder.start(sink or _ring(model, layers, directory), layers)
    except Exception as error:
        recorder.step_aside(f"{type(error).__name__}: {error}")
    if sink is None and recorder.active:
        _attached.append(recorder)
        atexit.register(recorder.detach)
    return recorder


class TransformersRecorder:
    """The hooks in one model. ``active`` says whether rows are being written, ``path`` where."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._calls = threading.local()
        self._lock = threading.Lock()
        self._handles: list[Any] = []
        self._rows: ModelRows | None = None
        self._sink: Sink | None = None
        self._compiling: Callable[[], bool] = _compiling()

    @property
    def active(self) -> bool:
        return self._rows is not None

    @property
    def path(self) -> Path | None:
        return getattr(self._sink, "path", None)

    def start(self, sink: Sink, layers: int) -> None:
        """Hook into the model; rows go to ``sink``."""
        self._sink, self._rows = sink, ModelRows(sink, layers, str(getattr(self._model, "device", "cpu")))
        self._handles.append(self._model.register_forward_pre_hook(self._before_forward, with_kwargs=True))
        self._handles.append(self._model.register_forward_hook(self._after_forward, with_kwargs=True))
        if callable(getattr(self._model, "generate", None)):
            self._model.generate = self._watching(self._model.generate)

    def detach(self) -> None:
        """Take every hook out again; the recorder's file stays for ``kvscope diagnose``."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        vars(self._model).pop("generate", None)
        self._rows = None
        if self in _attached:
            _attached.remove(self)
            atexit.unregister(self.detach)
        if isinstance(self._sink, RingWriter):
            self._sink.close()

    def step_aside(self, why: str) -> None:
        """Say once why nothing more is recorded, and take the hooks out."""
        _log.warning("kvscope stepped aside, %s is not recorded: %s", type(self._model).__name__, why)
        with contextlib.suppress(Exception):
            self.detach()

    def _guarded(self, what: Callable[[ModelRows], None]) -> None:
        rows = self._rows
        if rows is None:
            return
        try:
            with self._lock:
                what(rows)
        except Exception as error:
            self.step_aside(f"{type(error).__name__}: {error}")

    def _watching(self, generate: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(generate)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if self._rows is None or getattr(self._calls, "now", None) is not None:
                return generate(*args, **kwargs)
            # What an encoder is asked with is not what its decoder starts from.
            encoder = getattr(getattr(self._model, "config", None), "is_encoder_decoder", False)
            asked = 0 if encoder else prompt_length(args, kwargs)
            self._calls.now = call = Generation(time.monotonic(), asked=asked)
            try:
                output = generate(*args, **kwargs)
            finally:
                self._calls.now = None
            now = time.monotonic()
            self._guarded(lambda rows: rows.finish(call, now, output, self._model, kwargs))
            return output

        return watched

    def _before_forward(self, _module: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        if self._compiling():
            return
        call = getattr(self._calls, "now", None) or Generation(time.monotonic(), alone=True)
        self._calls.forward = call
        self._guarded(lambda rows: rows.begin(call, time.monotonic(), args, kwargs))

    def _after_forward(self, _module: Any, _args: Sequence[Any], kwargs: dict[str, Any], output: Any) -> None:
        if self._compiling():
            return
        call = getattr(self._calls, "forward", None)
        if call is not None:
            self._guarded(lambda rows: rows.forwarded(call, time.monotonic(), kwargs, output))


def layer_count(model: Any) -> int:
    """Return how many decoder layers the model's config names. AttributeError where it names none."""
    config = model.config
    text = config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config
    return int(text.num_hidden_layers)


def _ring(model: Any, layers: int, directory: Path | None) -> RingWriter:
    config = model.config
    header = {
        "engine": "transformers",
        "version": str(getattr(sys.modules.get("transformers"), "__version__", "")),
        "model": str(getattr(config, "name_or_path", "") or type(model).__name__),
        "device": str(getattr(model, "device", "cpu")),
        "dtype": str(getattr(model, "dtype", "")).removeprefix("torch."),
    }
    return RingWriter(header, columns(layers), REQUEST_COLUMNS, directory=directory)


def _compiling() -> Callable[[], bool]:
    """Return the question whether a forward pass is being traced into a graph: hooks must leave no mark in one."""
    compiler = getattr(sys.modules.get("torch"), "compiler", None)
    return getattr(compiler, "is_compiling", lambda: False)
