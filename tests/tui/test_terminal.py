"""The real program in a real terminal (tmux): it draws, obeys keys, and leaves the terminal as it found it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from probes.runtime import process_start_ticks
from tests.tui.target import Target

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
LIMIT_S = 30.0


class Pane:
    """A shell in tmux of its own server, 100 x 30."""

    def __init__(self) -> None:
        self.name = f"kvscope-{uuid.uuid4().hex[:8]}"
        self.tmux("new-session", "-d", "-x", "100", "-y", "30", "env", "-i", "PS1=ready$ ", "TERM=xterm", "sh")
        self.until("ready$")

    def tmux(self, *words: str) -> str:
        return subprocess.run(["tmux", "-L", self.name, *words], capture_output=True, text=True, check=True).stdout

    def send(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    @property
    def shown(self) -> str:
        return self.tmux("capture-pane", "-p")

    @property
    def modes(self) -> str:
        """Alternate screen on, mouse reported, cursor shown: what a program can leave behind."""
        return self.tmux("display", "-p", "#{alternate_on} #{mouse_any_flag} #{cursor_flag}").strip()

    def until(self, text: str) -> str:
        """Wait for ``text`` on the screen, without a fixed pause."""
        end = time.monotonic() + LIMIT_S
        while text not in (shown := self.shown):
            assert time.monotonic() < end, f"no {text!r} within {LIMIT_S:.0f} s on:\n{shown}"
            time.sleep(0.05)
        return shown

    def press_until(self, key: str, text: str) -> None:
        """Press a key, again where it was lost: a program that has just come back drops what waited for it."""
        end = time.monotonic() + LIMIT_S
        while text not in self.shown:
            assert time.monotonic() < end, f"{key} never showed {text!r}"
            self.send(key)
            for _ in range(40):
                if text in self.shown:
                    return
                time.sleep(0.05)

    def run(self, words: str, before: str = "") -> None:
        """Run the program, or with lines of Python ``before`` it; then say how the terminal was left."""
        main = f"-c '{before}; from kvscope.__main__ import main; main()'" if before else "-m kvscope"
        self.send("-l", f"{sys.executable} {main} {words}; stty -a | grep -o '[-]*echo '; echo over-$?")
        self.send("Enter")


@pytest.fixture
def pane() -> Iterator[Pane]:
    one = Pane()
    yield one
    subprocess.run(["tmux", "-L", one.name, "kill-server"], capture_output=True, check=False)


def restored(pane: Pane) -> None:
    """The shell answers, echo is on, and neither alternate screen nor mouse reports are."""
    shown = pane.until("over-0")
    assert "-echo " not in shown
    assert pane.modes == "0 0 1"
    assert "Traceback" not in shown


def pid_of(words: str) -> int:
    found = subprocess.run(["pgrep", "-f", f"^{sys.executable} -m kvscope {words}$"], capture_output=True, text=True)
    return int(found.stdout.split()[0])


@contextmanager
def attached(pane: Pane, directory: Path, after: str = "", before: str = "") -> Iterator[str]:
    """The program on an engine in the pane, live; the words it was started with. ``after``: where its streams go."""
    pane.send("-l", f"cd {Path(__file__).parents[2]}")
    pane.send("Enter")
    with Target(8, directory) as target:
        words = f"attach {target.ring}"
        pane.run(f"{words} {after}".rstrip(), before)
        pane.until("● live")
        yield words


def test_the_program_draws_obeys_and_survives_its_engine(pane: Pane, tmp_path: Path) -> None:
    with attached(pane, tmp_path):
        pane.until("output token")
        pane.send("6")
        pane.until("layer spread")
        pane.send("C-z")
        pane.until("ready$")
        assert pane.modes == "0 0 1", "suspended, the terminal is the shell's"
        pane.send("-l", "fg")
        pane.send("Enter")
        pane.until("layer spread")
        pane.press_until("Escape", "TTFT ")
        pane.until("kvscope  engine")
    shown = pane.until("ended")
    assert "KV pool" in shown, "the past stays on screen"
    pane.send("C-c")
    restored(pane)


def test_a_kill_leaves_the_terminal_as_it_was(pane: Pane, tmp_path: Path) -> None:
    with attached(pane, tmp_path) as words:
        subprocess.run(["kill", "-TERM", str(pid_of(words))], check=True)
        restored(pane)


def test_a_closed_terminal_ends_the_program(pane: Pane, tmp_path: Path) -> None:
    with attached(pane, tmp_path) as words:
        pid = pid_of(words)
        pane.tmux("kill-server")
        ended = time.monotonic() + LIMIT_S
        while process_start_ticks(pid) is not None:
            assert time.monotonic() < ended, f"process {pid} outlives its terminal"
            time.sleep(0.05)


@pytest.mark.parametrize("after", ["| head -1", ">&-"], ids=["pipe", "closed"])
def test_what_becomes_of_standard_output_is_all_the_same(pane: Pane, tmp_path: Path, after: str) -> None:
    with attached(pane, tmp_path, after):
        pane.send("q")
        restored(pane)


@pytest.mark.parametrize("after", ["< /dev/null", "<&-", "2> /dev/null"])
def test_without_a_terminal_one_line_says_what_is_missing(pane: Pane, tmp_path: Path, after: str) -> None:
    pane.send("-l", f"cd {Path(__file__).parents[2]}; clear")
    pane.send("Enter")
    with Target(8, tmp_path) as target:
        pane.run(f"attach {target.ring} {after}; echo code-$?")
        shown = pane.until("over-0")
    assert "code-2" in shown
    assert "Traceback" not in shown
    assert ("reads keys from standard input" in shown) == (after[0] == "<")


def test_a_panel_that_fails_in_the_real_program_takes_nothing_with_it(pane: Pane, tmp_path: Path) -> None:
    before = "from kvscope.tui.panels.headlines import VitalLines; VitalLines.draw = None"
    with attached(pane, tmp_path, before=before):
        shown = pane.until("not drawn: TypeError")
        assert "No diagnosis yet" in shown or "No finding" in shown
        pane.send("8")
        pane.until("Blocks moved")
        pane.send("q")
        restored(pane)
