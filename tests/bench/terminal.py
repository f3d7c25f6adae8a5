"""A program in a terminal of its own, and what it writes, costs and holds."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Sequence
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
_ESCAPES = re.compile(rb"\x1b(\[[0-9;?<>=]*[A-Za-z]|\][^\x07]*\x07)")


class Terminal:
    """A program in a terminal of 160 x 48; ``seen`` is everything it wrote."""

    def __init__(self, command: Sequence[str]) -> None:
        self.began = time.monotonic()
        self.master, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 48, 160, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self.process = subprocess.Popen(
            list(command), stdin=other, stdout=other, stderr=other, env=environment, start_new_session=True
        )
        os.close(other)
        self.seen = b""

    def read(self, words: Sequence[str] = (), limit_s: float = 10.0) -> None:
        """Read until all of ``words`` were written, or for ``limit_s``."""
        began = time.monotonic()
        while (left := limit_s - (time.monotonic() - began)) > 0:
            if not select.select([self.master], [], [], min(left, 0.2))[0]:
                continue
            try:
                self.seen += os.read(self.master, 1 << 16)
            except OSError:
                return  # the program has left its terminal
            if words and self.shows(words):
                return

    def shows(self, words: Sequence[str]) -> bool:
        """Whether all of ``words`` were written so far, whatever colours lie between their letters."""
        plain = _ESCAPES.sub(b"", self.seen)
        return all(word.encode() in plain for word in words)

    def key(self, key: str, least: int) -> float:
        """Press a key; seconds until the program wrote ``least`` bytes."""
        while select.select([self.master], [], [], 0.15)[0]:
            os.read(self.master, 1 << 16)
        began, written = time.monotonic(), 0
        os.write(self.master, key.encode())
        while written < least and time.monotonic() - began < 2:
            if select.select([self.master], [], [], 0.05)[0]:
                written += len(os.read(self.master, 1 << 16))
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
