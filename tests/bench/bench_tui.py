"""What the dashboard costs: first frame, processor, memory, a key's way to the screen, one frame.

``python -m tests.bench.bench_tui [--seconds 60] [--starts 9] [--only first,run,beside,frame] [--beside VLLMSTAT]``.
The dashboard runs in a terminal of 160 x 48 on a made-up engine of 64 layers; a bare Textual application starts in turn
with it, as the floor. ``--beside`` takes the path of vllmstat (pip install vllmstat, in a place of its own): both
read the pages of a captured vLLM server from one local server, at one rate, at the same time.
"""

from __future__ import annotations

import argparse
import asyncio
import compileall
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from kvscope.signals.reading import Reading
from kvscope.tui.app import KvscopeApp
from kvscope.tui.ordering import plain
from kvscope.view import Page, Table, View
from tests.bench.pages import Pages
from tests.bench.terminal import Terminal
from tests.tui.still import StillSession
from tests.tui.target import Target
from tests.tui.views import full_view

KVSCOPE = (sys.executable, "-m", "kvscope")
FRESH = ("KV memory", "linear 22", "● throughput", "● hot", "KV bytes per layer", "Quit")
"""Words of the first whole frame: the numbers, both charts, the map's frame and the last line."""
KEYS = {
    "the next part": ("\t", 400),
    "help": ("?", 400),
    "Layers": ("6", 400),
    "one panel alone": ("f", 400),
    "the reading cursor": ("\x1b[D", 40),
}
"""Each with the bytes it writes at least; what opens something is pressed again to close it."""
BARE = """
from textual.app import App
from textual.widgets import Static
class Bare(App):
    def compose(self):
        yield Static("here it is")
Bare().run()
"""
PAGES = Path(__file__).parents[2] / "samples" / "captures" / "admission-limited" / "pages.jsonl.gz"
STARTED_S = 12.0
PAST_S = 400.0
"""More than a recorder of 64 layers holds."""


def bench_first(directory: Path, starts: int) -> None:
    """From the start of the process to the first whole frame with values in it, and a bare Textual application's."""
    compileall.compile_dir("kvscope", quiet=1)
    compileall.compile_dir("probes", quiet=1)
    rows: dict[str, list[float]] = {}
    for past in (0.0, PAST_S):
        with Target(64, directory, past) as target:
            time.sleep(3.0)
            for _ in range(starts):
                name = "first frame, a recorder with a long past" if past else "first frame"
                rows.setdefault(name, []).append(_first((*KVSCOPE, "attach", str(target.ring)), FRESH))
                if not past:
                    bare = _first((sys.executable, "-c", BARE), ("here it is",))
                    rows.setdefault("first frame of a bare Textual application", []).append(bare)
    for name, found in rows.items():
        print(f"{name}: median {median(found):.2f} s, best {min(found):.2f} s, worst {max(found):.2f} s")


def _first(command: Sequence[str], words: Sequence[str]) -> float:
    terminal = Terminal(command)
    terminal.read(words)
    took = time.monotonic() - terminal.began
    terminal.end()
    return took


def bench_run(directory: Path, seconds: int) -> None:
    """Attach at both rates, and read what it costs; the first 12 s are the start."""
    for interval in (1.0, 0.5):
        with Target(64, directory) as target:
            terminal = Terminal((*KVSCOPE, "attach", str(target.ring), "--interval", str(interval)))
            terminal.read(limit_s=STARTED_S)
            rate = f"{1 / interval:g} Hz"
            _tell_processor(f"processor at {rate}, 64 layers", _shares([terminal], seconds)[0])
            for name, (key, least) in KEYS.items():
                took = sorted(terminal.key(key, least) for _ in range(20))
                print(
                    f"key to screen at {rate}, {name}: median {median(took) * 1e3:.0f} ms, p95 {took[-2] * 1e3:.0f} ms"
                )
            print(f"memory at {rate}: {terminal.memory_mb():.0f} MB")
            terminal.end()
    with Target(64, directory, PAST_S) as target:
        time.sleep(5.0)
        terminal = Terminal((*KVSCOPE, "attach", str(target.ring)))
        terminal.read(limit_s=STARTED_S)
        print(f"memory on a recorder with a long past: {terminal.memory_mb():.0f} MB")
        terminal.end()


def bench_beside(vllmstat: Path, seconds: int) -> None:
    """Both read the same pages at the same rate at the same time."""
    if not vllmstat.is_file():
        print(f"beside vllmstat: left out, {vllmstat} is not there")
        return
    for interval in ("1", "0.5"):
        with Pages(PAGES) as server:
            both = [
                Terminal((*KVSCOPE, "attach", server.url, "--interval", interval)),
                Terminal((str(vllmstat), "--url", server.url, "--interval", interval)),
            ]
            for terminal in both:
                terminal.read(limit_s=STARTED_S / 2)
            spent = _shares(both, seconds)
            for name, terminal, shares in zip(("kvscope", "vllmstat"), both, spent, strict=True):
                _tell_processor(f"processor at {1 / float(interval):g} Hz on vLLM's page, {name}", shares)
                print(f"  memory {terminal.memory_mb():.0f} MB")
            print(f"  kvscope / vllmstat: {_mean(spent[0]) / max(_mean(spent[1]), 1e-9):.2f} by mean")
            for terminal in both:
                terminal.end()


def _shares(terminals: Sequence[Terminal], seconds: int) -> list[list[float]]:
    """Percent of a core of each, over stretches of 2 s."""
    before, spent = [terminal.cpu_s() for terminal in terminals], [list[float]() for _ in terminals]
    for _ in range(seconds // 2):
        began = time.monotonic()
        while (left := began + 2 - time.monotonic()) > 0:
            for terminal in terminals:
                terminal.read(limit_s=min(left, 0.1))
        for at, terminal in enumerate(terminals):
            now = terminal.cpu_s()
            spent[at].append((now - before[at]) / (time.monotonic() - began) * 100)
            before[at] = now
    return spent


def _mean(found: Sequence[float]) -> float:
    return sum(found) / len(found)


def _tell_processor(name: str, shares: Sequence[float]) -> None:
    print(f"{name}: median {median(shares):.1f} %, mean {_mean(shares):.1f} % of a core")


def views(count: int) -> list[View]:
    """A view of 128 layers, moving."""
    base = full_view(128)
    memory = base.headlines[0]
    return [
        replace(
            base,
            now_s=base.now_s + at,
            window=(base.window[0] + at, base.window[1] + at),
            headlines=(replace(memory, now=Reading(7e7 + at * 1e5, 4e5, "B")), *base.headlines[1:]),
        )
        for at in range(count)
    ]


async def bench_frame() -> None:
    """Processor time of handing a new view to the screen and of composing what changed."""
    session = StillSession(full_view(128))
    app = KvscopeApp(session, interval_s=600)
    async with app.run_test(size=(160, 48)) as pilot:
        app.poller.drain()
        await pilot.pause()
        for name in ("overview", "requests"):
            if name == "requests":
                session.view = requests_view(session.view, 0)
                await pilot.press("R")
                app.poller.drain()
                await pilot.pause()
            spent = []
            for at, view in enumerate(views(40)):
                shown = requests_view(view, at) if name == "requests" else view
                began = time.thread_time()
                app.screen.receive(shown)  # type: ignore[attr-defined]
                app.screen._compositor.render_update(full=False)
                spent.append(time.thread_time() - began)
                await pilot.pause()
            assert plain(app)
            told = f"median {median(spent) * 1000:.1f} ms, p95 {sorted(spent)[-3] * 1000:.1f} ms"
            print(f"one frame, {name}, 128 layers, 512 requests: {told}")


def requests_view(view: View, at: int) -> View:
    """512 finished requests, one more each time."""
    columns = (("ended", "time"), *((f"n{index}", "s") for index in range(9)))
    rows = tuple((view.now_s - n, *(0.1 * (n + at + index) for index in range(9))) for n in range(512))
    return replace(view, page=Page("requests", (), Table(columns, rows, (), tuple(str(n) for n in range(512)))))


def main() -> None:
    """Print one line a figure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--starts", type=int, default=9)
    parser.add_argument("--only", default="first,run,beside,frame")
    parser.add_argument("--beside", type=Path, metavar="VLLMSTAT")
    given = parser.parse_args()
    parts = given.only.split(",")
    print(f"load of this machine, {os.cpu_count()} cores: {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as directory:
        if "frame" in parts:
            asyncio.run(bench_frame())
        if "first" in parts:
            bench_first(Path(directory), given.starts)
        if "run" in parts:
            bench_run(Path(directory), given.seconds)
        if "beside" in parts and given.beside:
            bench_beside(given.beside, given.seconds)
        elif "beside" in parts:
            print("beside vllmstat: left out, --beside names no vllmstat")
    print(f"load at the end: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
