"""Watch a real engine get a smaller KV cache and no more throughput; see why, and whether the fix was right.

Starts the built-in engine in a child process under its own load (no network; no GPU unless --device asks for one). On a
terminal the dashboard shows it live; --headless prints the report when the script has ended. Needs the extra `engine`.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvscope.demo import Demo
    from kvscope.finding import Diagnosis
    from kvscope.sources.builtin import BuiltinEngine

GROUP = "watch an engine"
EXAMPLES = ("kvscope demo --headless --format json",)


def configure(parser: argparse.ArgumentParser) -> None:
    """--headless, format, length."""
    from kvscope.commands._dashboard import add_web

    parser.add_argument("--headless", action="store_true", help="no dashboard: print the report at the end")
    parser.add_argument("--format", help="of the report: text, json or markdown (default text)")
    parser.add_argument("--act", type=float, default=10.0, metavar="S", help="seconds per act (10)")
    parser.add_argument("--threads", type=int, default=2, help="threads of the engine (2)")
    parser.add_argument("--device", default="cpu", metavar="NAME", help="where the engine runs: cpu (default), cuda")
    add_web(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="also record everything into FILE")


def run(options: argparse.Namespace) -> int:
    """Exit 0 when the script ran to its end, whatever it found."""
    import sys
    from contextlib import closing
    from pathlib import Path

    from kvscope import report
    from kvscope.commands import _dashboard
    from kvscope.commands._dashboard import draw
    from kvscope.commands._options import settings_of
    from kvscope.demo import KNOBS, Demo
    from kvscope.errors import UsageError
    from kvscope.order import Record
    from kvscope.progress import waiting
    from kvscope.session import Session
    from kvscope.sources import open_target
    from kvscope.sources.builtin import BuiltinEngine
    from kvscope.watch import load_playbooks

    if options.web:
        words = ["demo", "--act", str(options.act), "--threads", str(options.threads), "--device", options.device]
        return _dashboard.serve_page(words, options.web_address)
    settings = settings_of(options)
    if options.act < 5.0:
        raise UsageError(f"--act is {options.act:g}, expected at least 5 seconds: a verdict needs that much")
    render, books = report.get(settings.format), load_playbooks(settings)
    headless = options.headless or not (sys.stdout.isatty() or _dashboard.in_page())
    with waiting("starting the engine (the first time its kernels are compiled)") as tick:
        engine = BuiltinEngine.start(KNOBS, ("--threads", str(options.threads), "--device", options.device), tick)
    try:
        assert engine.ring is not None
        assert engine.control is not None
        session = Session(open_target(str(engine.ring)), books, controller=engine.control)
        with closing(Demo(session, engine.control, options.act)) as demo:
            if options.output:
                demo.do(Record(Path(options.output)))
            if headless:
                print(render(_play(demo, engine, settings.interval)))
            else:
                draw(demo, settings, fastest_s=0.5)
    finally:
        engine.stop(keep_recorder=False)
    return 0


def _play(demo: Demo, engine: BuiltinEngine, interval_s: float) -> Diagnosis:
    """Poll until the script has ended; SourceError when the engine dies first."""
    import time

    from kvscope.errors import SourceError
    from kvscope.progress import Line

    line = Line()
    try:
        while not demo.done:
            line.show(demo.poll().status)
            if engine.exit_code() is not None:
                raise SourceError(f"the engine ended (exit code {engine.exit_code()}): {engine.last_words()}")
            time.sleep(min(interval_s, 0.5))
    finally:
        line.wipe()
    return demo.result()
