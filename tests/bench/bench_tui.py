"""What the dashboard costs: processor, memory, first frame, one frame, a key's way to the screen.

``python -m tests.bench.bench_tui [SECONDS]`` (60). The dashboard runs in a terminal of 160 x 48 on a made-up engine of
64 layers; a frame is measured in this process at 128 layers and 512 requests.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from kvscope.signals.reading import Reading
from kvscope.tui.app import KvscopeApp
from kvscope.tui.saving import plain
from kvscope.view import Page, Table, View
from tests.tui.still import StillSession
from tests.tui.target import Target
from tests.tui.views import full_view

TICKS = os.sysconf("SC_CLK_TCK")
FRESH = "one output token"


class Terminal:
    """A program in a terminal of 160 x 48; ``seen`` is everything it wrote."""

    def __init__(self, words: Sequence[str]) -> None:
        self.began = time.monotonic()
        self.master, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 48, 160, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        command = [sys.executable, "-m", "kvscope", *words]
        self.process = subprocess.Popen(
            command, stdin=other, stdout=other, stderr=other, env=environment, start_new_session=True
        )
        os.close(other)
        self.seen = b""

    def read(self, until: str = "", limit_s: float = 10.0) -> float:
        """Read until ``until`` was written after this call, or for ``limit_s``; seconds it took."""
        began, start = time.monotonic(), len(self.seen)
        while (left := limit_s - (time.monotonic() - began)) > 0:
            if not select.select([self.master], [], [], min(left, 0.2))[0]:
                continue
            try:
                self.seen += os.read(self.master, 1 << 16)
            except OSError:
                break  # the program has left its terminal
            if until and until.encode() in self.seen[start:]:
                break
        return time.monotonic() - began

    def key(self, key: str) -> float:
        """Press a key; seconds until the program wrote something more than a tick writes."""
        while select.select([self.master], [], [], 0.15)[0]:
            self.seen += os.read(self.master, 1 << 16)
        began, start = time.monotonic(), len(self.seen)
        os.write(self.master, key.encode())
        while len(self.seen) - start < 400 and time.monotonic() - began < 2:
            if select.select([self.master], [], [], 0.05)[0]:
                self.seen += os.read(self.master, 1 << 16)
        return time.monotonic() - began

    def cpu_s(self) -> float:
        """Processor seconds so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory_mb(self) -> float:
        """Largest resident memory so far, MB."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1000

    def end(self) -> None:
        """Let it leave as after Ctrl-C."""
        self.process.send_signal(signal.SIGINT)
        self.read(limit_s=0.5)
        try:
            self.process.wait(3)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.master)


def bench_terminal(directory: Path, seconds: int) -> None:
    """Attach at both rates, and read what it costs a second at a time; the first 12 s are the start."""
    with Target(64, directory) as target:
        firsts = []
        for interval in ("1", "0.5"):
            terminal = Terminal(["attach", str(target.ring), "--interval", interval])
            terminal.read(FRESH)
            firsts.append(time.monotonic() - terminal.began)
            terminal.read(limit_s=12)
            spent, before = [], terminal.cpu_s()
            for _ in range(seconds // 2):
                terminal.read(limit_s=2)
                now = terminal.cpu_s()
                spent.append((now - before) / 2 * 100)
                before = now
            rate = f"{1 / float(interval):g} Hz"
            mean = sum(spent) / len(spent)
            print(f"processor at {rate}, 64 layers: median {median(spent):.1f} %, mean {mean:.1f} % of a core")
            keys = [terminal.key("?") for _ in range(20)]
            print(f"key to screen at {rate}: median {median(keys) * 1000:.0f} ms, worst {max(keys) * 1000:.0f} ms")
            print(f"memory at {rate}: {terminal.memory_mb():.0f} MB")
            terminal.end()
        for _ in range(4):
            terminal = Terminal(["attach", str(target.ring)])
            terminal.read(FRESH)
            firsts.append(time.monotonic() - terminal.began)
            terminal.end()
        print(f"first frame: median {median(firsts):.2f} s, worst {max(firsts):.2f} s")


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
                began = time.process_time()
                app.screen.receive(shown)  # type: ignore[attr-defined]
                app.screen._compositor.render_update(full=False)
                spent.append(time.process_time() - began)
                await pilot.pause()
            assert plain(app)
            worst = sorted(spent)[-3]
            told = f"median {median(spent) * 1000:.1f} ms, p95 {worst * 1000:.1f} ms"
            print(f"one frame, {name}, 128 layers, 512 requests: {told}")


def requests_view(view: View, at: int) -> View:
    """512 finished requests, one more each time."""
    columns = (("ended", "time"), *((f"n{index}", "s") for index in range(9)))
    rows = tuple((view.now_s - n, *(0.1 * (n + at + index) for index in range(9))) for n in range(512))
    return replace(view, page=Page("requests", (), Table(columns, rows, (), tuple(str(n) for n in range(512)))))


def main() -> None:
    """Print one line a figure."""
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    asyncio.run(bench_frame())
    with tempfile.TemporaryDirectory() as directory:
        bench_terminal(Path(directory), seconds)


if __name__ == "__main__":
    main()
