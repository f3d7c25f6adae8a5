"""An engine's own profiler, turned on for a few steps: what it costs, its start and stop, the trace it leaves.

vLLM 0.32 ``entrypoints/serve/profile/api_router.py`` (the routes exist where ``--profiler-config`` names torch's
profiler; before 0.13 where VLLM_TORCH_PROFILER_DIR is set), SGLang 0.5.23 ``srt/entrypoints/http_server.py`` (always
there; ``output_dir`` and ``num_steps`` in the body). Neither serves the trace: it lies in a folder of its machine.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psutil

from kvscope.errors import NotEnoughData, SourceError, UsageError
from kvscope.sources import access
from kvscope.sources.fetch import FetchError, fetch
from kvscope.sources.flags import parse_flags
from kvscope.sources.scrape import ScrapeSource

LOOK_S, EVERY_S = 3.0, 0.25
START_S, STOP_S, WRITTEN_S = 60.0, 600.0, 120.0
"""Stopping returns when the trace is written, which takes longer than the steps."""
_PARENTS = 3
_ENVIRONMENT = {"vllm": "VLLM_TORCH_PROFILER_DIR", "sglang": "SGLANG_TORCH_PROFILER_DIR"}
_TURN_ON = {
    "vllm": 'start the server with --profiler-config \'{"profiler":"torch","torch_profiler_dir":"/tmp/trace",'
    '"torch_profiler_record_shapes":true}\' (before 0.13: VLLM_TORCH_PROFILER_DIR=/tmp/trace)',
    "sglang": "the route belongs to administrators: give --bearer-env with the server's --admin-api-key",
}
Pause = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Pace:
    """Steps and seconds of a stretch, and requests that ran."""

    steps: float
    seconds: float
    running: float

    @property
    def step_s(self) -> float | None:
        """Time of a step; None where the page counts none."""
        return self.seconds / self.steps if self.steps > 0 else None


@dataclass(frozen=True, slots=True)
class Profile:
    """What a profile left and what it cost: pace while it ran, and the seconds that stopping took."""

    trace: Path
    others: tuple[Path, ...]
    pace: Pace
    stood_s: float


class Profiler:
    """Profiles the engine behind an address. SourceError or UsageError where that cannot be done."""

    def __init__(self, address: str, folder: str | None = None, pause: Pause = time.sleep) -> None:
        self._page = ScrapeSource(address)
        self._pause = pause
        about = self._page.describe()
        self.engine = about.engine
        if self.engine not in _TURN_ON:
            raise UsageError(
                f"{address}: {self.engine} has no profiler that can be turned on over HTTP; expected vLLM or SGLang "
                "(any engine: a torch profiler's trace, or nsys export --type sqlite, is a target of diagnose)"
            )
        self.folder = self._folder(folder)

    def close(self) -> None:
        self._page.close()

    def watch(self, seconds: float = LOOK_S, steps: float = 0.0) -> Pace:
        """Look at the page for so long, or until so many steps were done, and return the pace."""
        began, first, running, polls = time.monotonic(), None, 0.0, 0
        done = 0.0
        while True:
            for one in self._page.poll().samples:
                if one.metric == "batch.steps":
                    first = one.value if first is None else first
                    done = one.value - first
                elif one.metric == "sched.running":
                    running, polls = running + one.value, polls + 1
            spent = time.monotonic() - began
            if spent >= seconds or (steps and done >= steps):
                return Pace(done, spent, running / max(1, polls))
            self._pause(EVERY_S)

    def run(self, steps: int, before: Pace) -> Profile:
        """Profile about so many steps. The engine is told to stop whatever happens meanwhile."""
        present = self._traces()
        body: dict[str, object] = {"max_iterations": steps}
        if self.engine == "sglang":
            body = {"num_steps": steps, "output_dir": str(self.folder), "record_shapes": True}
        self._post("/start_profile", START_S, body)
        try:
            expected = steps * (before.step_s or 0.1)
            pace = self.watch(min(STOP_S, max(5.0, 10 * expected)), steps)
        finally:
            began = time.monotonic()
            # An engine that stopped by itself after its steps refuses to be stopped again.
            with contextlib.suppress(FetchError) if self.engine == "sglang" else contextlib.nullcontext():
                self._post("/stop_profile", STOP_S)
        stood = time.monotonic() - began
        found = self._written(present)
        first = next((path for path in found if _rank_of(path) == 0), found[0])
        return Profile(first, tuple(path for path in found if path != first), pace, stood)

    def _traces(self) -> dict[Path, float]:
        found = {}
        with contextlib.suppress(OSError):
            for path in self.folder.rglob("*.json*"):
                # vLLM's front end writes a trace of its own beside the workers': it holds no step.
                if "async_llm" not in path.name and path.suffix in (".json", ".gz"):
                    found[path] = path.stat().st_mtime
        return found

    def _written(self, before: dict[Path, float]) -> list[Path]:
        """Return the traces that came, once none grows any more."""
        until, sizes = time.monotonic() + WRITTEN_S, None
        while time.monotonic() < until:
            fresh = sorted(path for path, when in self._traces().items() if before.get(path) != when)
            now = [path.stat().st_size for path in fresh]
            if fresh and now == sizes and all(now):
                return fresh
            sizes = now
            self._pause(2 * EVERY_S)
        raise SourceError(f"{self.folder}: no trace came within {WRITTEN_S:g} s; expected one that the engine writes")

    def _folder(self, told: str | None) -> Path:
        """Return the folder that traces are written to, as it is seen from here."""
        found = told or _folder_of(self._page.pid, self.engine)
        if found is None and self.engine == "sglang" and self._page.pid is not None:
            found = "/tmp"
        if found is None:
            raise UsageError(
                f"{self._page.url}: where the engine writes its traces cannot be told from here: give --dir FOLDER, as "
                f"it is seen from this machine; {_TURN_ON[self.engine]}"
            )
        folder = Path(found)
        if not folder.is_dir() and told:
            raise UsageError(
                f"--dir {told}: no such folder on this machine; expected the one that the engine writes to"
            )
        return folder

    def _post(self, path: str, timeout_s: float, body: dict[str, object] | None = None) -> None:
        parts = urlsplit(self._page.url)
        url = urlunsplit((parts.scheme, parts.netloc, path, "", ""))
        headers = {**access.current().headers, "Content-Type": "application/json"}
        try:
            fetch(url, timeout_s, form=json.dumps(body).encode() if body else b"", headers=headers)
        except FetchError as error:
            if path == "/start_profile":
                raise SourceError(f"{error}; {_TURN_ON[self.engine]}") from error
            raise


def enough(pace: Pace, address: str) -> None:
    """NotEnoughData where the engine runs nothing: a profile of an idle engine says nothing and costs all the same."""
    if pace.running < 0.5 and not pace.steps:
        raise NotEnoughData(f"{address}: nothing runs there, so there is no step to profile; send it some work")


def _folder_of(pid: int | None, engine: str) -> str | None:
    """Return the folder that a local engine's command line or environment names."""
    if pid is None:
        return None
    with contextlib.suppress(psutil.Error, ValueError):
        process = psutil.Process(pid)
        for one in [process, *process.parents()[:_PARENTS]]:
            if found := _said(one.cmdline()) or one.environ().get(_ENVIRONMENT[engine], ""):
                return found
    return None


def _said(words: Sequence[str]) -> str:
    names = ("profiler-config", "profiler-config.torch-profiler-dir")
    found = parse_flags(words, names)
    if names[1] in found:
        return found[names[1]]
    with contextlib.suppress(ValueError):
        told = json.loads(found.get("profiler-config", "{}"))
        if isinstance(told, dict) and isinstance(told.get("torch_profiler_dir"), str):
            return str(told["torch_profiler_dir"])
    return ""


def _rank_of(path: Path) -> int:
    """Return the rank in a trace's name (``rank0`` of vLLM, ``TP-0`` of SGLang); 0 where it has none."""
    for mark in ("rank", "TP-"):
        _, found, rest = path.name.partition(mark)
        digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
        if found and digits:
            return int(digits)
    return 0
