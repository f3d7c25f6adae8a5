"""The engine's process: its loop, its flight recorder, its doors, and an orderly end.

Standard output carries one JSON line a fact for the launcher: ``ready`` with pid, port and ring, or ``error``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
from contextlib import suppress
from dataclasses import replace
from queue import Empty
from time import monotonic, perf_counter, time
from typing import Any

import numba
import torch

from engine import devices
from engine import settings as settings_module
from engine.exposition import latency_histograms, render
from engine.geometry import DTYPES
from engine.instruments import REQUEST_COLUMNS, Instruments, columns
from engine.knobs import KnobError
from engine.lab.recall import task
from engine.lab.workload import Load, RecallLoad
from engine.llm import Engine
from engine.memory import keep_freed_memory
from engine.model import ModelConfig
from engine.quality import Quality
from engine.scheduler import check_fits
from engine.server import Command, Server
from engine.serving.desk import Desk
from engine.serving.service import Service
from engine.serving.ticket import Ticket
from engine.settings import Settings
from engine.weights import open_model
from probes import border
from probes.recorder import Recorder
from probes.ring import RingWriter
from probes.runtime import process_start_ticks
from probes.version import __version__

IDLE_WAIT_S = 0.05
LONGEST_MARK, LONGEST_VALUE, MOST_CHANGES = 64, 4096, 100
MOST_FAILURES = 5
"""Steps that may fail one after another before the engine takes itself for broken."""


class Process:
    """One engine with its load, its recorder and its server, in this process."""

    def __init__(self, settings: Settings) -> None:
        keep_freed_memory()
        torch.set_num_threads(settings.threads)
        numba.set_num_threads(min(settings.threads, numba.config.NUMBA_NUM_THREADS))
        device = devices.get(settings.device, settings.dtype)
        self.loaded = loaded = open_model(settings.model, str(device.device))
        loaded.model.to(device.dtype)
        device.prepare(loaded.model)
        self.settings = settings = replace(settings, max_context=longest(settings, loaded.config, device.precision))
        self.engine = Engine(
            loaded.config,
            loaded.model,
            settings.knobs,
            pool_bytes=settings.pool_bytes,
            max_context=settings.max_context,
            block_tokens=settings.block_tokens,
            device=device,
        )
        self.engine.warm_up()
        self.load = self._load(settings.load)
        self.desk = Desk(self.engine, loaded.tokenizer)
        self.stopping = threading.Event()
        self.epoch = self._failures = 0
        self.info = {
            "engine": "kvscope-engine",
            "version": __version__,
            "model": loaded.name,
            "device": device.name,
            "dtype": device.precision,
        }
        self.histograms = latency_histograms()
        self.ring: RingWriter | None
        self.recorder: Recorder | None
        self.ring, self.recorder = self._open_recorder() if settings.probes else (None, None)
        self._announce("warm-up", {})
        try:
            self.server = Server(self._page, settings.host, settings.port)
        except BaseException:
            # It never served: its recorder is no evidence of anything.
            if self.ring is not None:
                self.ring.close()
                self.ring.path.unlink(missing_ok=True)
            raise
        if self.ring is not None:
            self.server.write_token(self.ring.path.with_suffix(".token"))
        self.server.start(
            Service(
                loaded.name,
                loaded.tokenizer,
                loaded.config.vocab_size,
                settings.max_context,
                int(time()),
                self.server.messages.put,
            )
        )

    def _load(self, load: Load) -> RecallLoad:
        """The load generator; KnobError when the model has fewer tokens than the recall task."""
        if load.clients and self.engine.config.vocab_size < task.VOCAB_SIZE:
            raise KnobError(f"knob load.clients is {load.clients}; expected 0 with a model of so few tokens")
        if load.clients:
            check_fits(load.longest, self.engine.cache)
        return RecallLoad(load, checked=self.loaded.recall)

    def _open_recorder(self) -> tuple[RingWriter, Recorder]:
        names = columns(self.engine.config.layers)
        parent = os.getppid()
        header = {
            **self.info,
            "launcher": {"pid": parent, "start_ticks": process_start_ticks(parent)},
            "geometry": {"layers": self.engine.config.layers, "block_tokens": self.settings.block_tokens},
            "phases_every": self.engine.runner.timed_every,
            "beats_s": IDLE_WAIT_S,
            "tags": self.tags(),
            "load": self.settings.load.as_text(),
        }
        ring = RingWriter(header, names, REQUEST_COLUMNS)
        recorder = Recorder(ring, names, REQUEST_COLUMNS)
        self.engine.probe = Instruments(recorder, self.histograms)
        self.engine.judge = Quality(self.engine)
        return ring, recorder

    def tags(self) -> dict[str, str]:
        """What a segment of this engine's recording is tagged with."""
        knobs, load = self.engine.knobs, self.settings.load
        return {
            **{key: self.info[key] for key in ("engine", "version", "model", "device")},
            "workload": f"recall {load.documents}x{load.document_tokens}+{load.question_tokens}->{load.new_tokens}",
            "offered_load": f"{load.clients} clients, closed loop",
            "policy": knobs.policy,
            "kernels": knobs.kernels,
            "cap": str(knobs.max_running),
        }

    def run(self) -> None:
        """Step until told to stop."""
        engine = self.engine
        while not self.stopping.is_set():
            self._commands()
            self.load.top_up(engine)
            if engine.has_work:
                self._step()
            else:
                self._idle()

    def _step(self) -> None:
        """One step; what raises in it costs whom it was at work for, not everybody. Raises when nothing else works."""
        try:
            self.engine.step()
            self._failures = 0
        except Exception as error:
            self._failures += 1
            if self._failures > MOST_FAILURES:
                raise
            # The kind of error and where it was; its text could quote a prompt.
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{os.path.basename(place.filename)}:{place.lineno}"
            sys.stderr.write(
                f"a step failed ({type(error).__name__} at {where}); the requests it was for are given up\n"
            )
            for request in self.engine.recover():
                self.desk.fail(request, error)

    def _idle(self) -> None:
        started = perf_counter()
        with suppress(Empty):
            self._execute(self.server.messages.get(timeout=IDLE_WAIT_S))
        if self.engine.probe is not None:
            self.engine.probe.idle(perf_counter() - started)
        if self.ring is not None:
            self.ring.beat()

    def _commands(self) -> None:
        while not self.server.messages.empty():
            self._execute(self.server.messages.get())

    def _execute(self, command: Command | Ticket) -> None:
        if isinstance(command, Ticket):
            self.desk.receive(command)
            return
        body = command.body
        try:
            changes = _changes(body.get("set"))
            mark = border.text(body["mark"], "mark", 4 * LONGEST_MARK) if body.get("mark") else ""
            if len(mark) > LONGEST_MARK:
                raise KnobError(f"a mark of {len(mark)} characters, expected at most {LONGEST_MARK}")
            if changes:
                self._change(changes)
            if changes or mark:
                self._announce(mark, changes)
            if body.get("stop"):
                self.stopping.set()
        except (KnobError, TypeError, ValueError) as error:
            command.answer(400, {"error": border.printable(error)})
            return
        except Exception as error:
            # A pool too large for this machine, a form that cannot be made: the settings stay as they were.
            command.answer(400, {"error": f"the engine cannot be set so ({type(error).__name__})"})
            return
        command.answer(
            200, {"knobs": {**self.engine.knobs.as_text(), **self.settings.load.as_text()}, "t": monotonic()}
        )

    def _change(self, changes: dict[str, str]) -> None:
        knobs, load = settings_module.apply(self.engine.knobs, self.settings.load, changes)
        if load != self.settings.load and load.longest > self.settings.max_context:
            raise KnobError(f"load of {load.longest} tokens a request, expected {self.settings.max_context} at most")
        of_engine = {name: value for name, value in changes.items() if not name.startswith("load.")}
        made = self._load(load) if load != self.settings.load else self.load
        self.engine.set_knobs(of_engine, load.longest if load.clients else 0)
        self.load = made
        self.settings = replace(self.settings, knobs=knobs, load=load)
        self.epoch += 1

    def _announce(self, mark: str, changes: dict[str, str]) -> None:
        if self.recorder is not None:
            self.recorder.set("engine.config_epoch", self.epoch)
            self.recorder.event("knobs", mark=mark, epoch=self.epoch, set=changes, tags=self.tags())

    def _page(self) -> str:
        row = self.recorder.snapshot() if self.recorder is not None else {}
        return render(row, self.histograms, self.info)

    def close(self) -> None:
        """End in good order: who waits is told, the recorder stays on disk, the token goes."""
        self.desk.close()
        self.server.close()
        if self.ring is not None:
            self.ring.close()


def _changes(given: object) -> dict[str, str]:
    """Knob → value as text. ValueError where that is not what was sent."""
    found = border.mapping(given, "set")
    if len(found) > MOST_CHANGES:
        raise KnobError(f"{len(found)} knobs at once, expected at most {MOST_CHANGES}")
    return {
        border.printable(name, 80): border.text(value, f"knob {border.printable(name, 40)}", LONGEST_VALUE)
        for name, value in found.items()
    }


def longest(settings: Settings, config: ModelConfig, dtype: str = "float32") -> int:
    """Tokens of the longest request to take: what was asked for, or all that both model and pool can hold.

    ValueError when more is asked for than they can: such a request would wait for ever.
    """
    bytes_per_token = 2 * config.layers * config.kv_heads * config.head_dim * DTYPES[dtype]
    blocks = settings.pool_bytes // (bytes_per_token * settings.block_tokens)
    fits = min(config.max_context, blocks * settings.block_tokens - 1)
    if settings.max_context > fits:
        raise ValueError(
            f"requests of {settings.max_context} tokens; the model takes {config.max_context} and a pool of "
            f"{settings.pool_bytes >> 20} MiB holds {blocks * settings.block_tokens}"
        )
    return settings.max_context or fits


def say(**fact: Any) -> None:
    """Tell the launcher one fact."""
    sys.stdout.write(json.dumps(fact) + "\n")
    sys.stdout.flush()


def watch_stdin(stopping: threading.Event) -> None:
    """End this process when its launcher is gone, however it went: the pipe closes with it."""

    def wait() -> None:
        sys.stdin.buffer.read()
        stopping.set()

    threading.Thread(target=wait, name="stdin-guard", daemon=True).start()


def main(argv: list[str]) -> int:
    """Run an engine process; returns its exit code."""
    try:
        process = Process(settings_module.parse(argv))
    except Exception as error:
        # Whatever stops the start is the launcher's to show in one line; a traceback would reach a user.
        say(error=f"{error}" or type(error).__name__)
        return 2
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: process.stopping.set())
    if process.settings.stdin_guard:
        watch_stdin(process.stopping)
    ring = str(process.ring.path) if process.ring is not None else None
    say(ready={"pid": os.getpid(), "port": process.server.port, "ring": ring})
    try:
        process.run()
    finally:
        process.close()
    return 0
