"""Record the walk-through of the README: the demo on a real engine, from healthy to confirmed, one picture a stage.

``python docs/make_pictures.py`` from a checkout with the extra `engine` and Chromium (a minute). Nothing on them is
made up: the dashboard of ``kvscope demo`` is drawn without a terminal, and saved when the script reaches each stage.
``--situations`` draws the first screen of captured engines instead, from the folder that KVSCOPE_CAPTURES names.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

os.environ["XDG_STATE_HOME"] = os.devnull
sys.path.insert(0, str(Path(__file__).parents[1]))

from textual.pilot import Pilot

from kvscope.demo import KNOBS, Demo
from kvscope.playbook import load_all
from kvscope.session import Session
from kvscope.sources import open_target
from kvscope.sources.builtin import BuiltinEngine
from kvscope.tui.app import KvscopeApp
from kvscope.view import View
from tests.tui.situations import NAMES, session_of

OUT = Path(__file__).parent / "images" / "walkthrough"
SIZE = (130, 38)
SCREEN = (120, 36)
ACT_S, LIMIT_S = 14.0, 240.0


def seconds_in(view: View, name: str) -> float:
    """How long the current segment has lasted, 0 when it is another one."""
    current = next((span for span in view.segments if span.is_current), None)
    return current.end_s - current.start_s if current is not None and current.name == name else 0.0


def found_as(view: View, verdict: str) -> bool:
    """Whether the finding that the demo acts on has that verdict."""
    return any(one.verdict == verdict and one.experiment and one.experiment.set for one in view.findings)


def measuring(view: View) -> bool:
    """The experiment is being measured."""
    return view.trial is not None and view.trial.windows >= 3


STAGES: tuple[tuple[str, Callable[[View], bool], tuple[str, ...]], ...] = (
    ("1-healthy", lambda view: seconds_in(view, "dense") >= 11, ("plus",)),
    ("2-compressed", lambda view: seconds_in(view, "compressed") >= 2.5, ()),
    ("3-finding", lambda view: seconds_in(view, "compressed") >= 8 and found_as(view, "likely"), ()),
    ("4-evidence", lambda view: found_as(view, "likely"), ("2",)),
    ("5-verify", measuring, ("escape",)),
    ("6-confirmed", lambda view: found_as(view, "confirmed") and seconds_in(view, "verified") >= ACT_S + 3, ()),
)
"""Name, when it is taken, and the keys pressed before."""


async def record(app: KvscopeApp) -> None:
    """Wait for each stage, press its keys, save."""
    async with app.run_test(size=SIZE) as pilot:
        for name, reached, keys in STAGES:
            await wait(app, pilot, reached, name)
            if keys:
                await pilot.press(*keys)
                await asyncio.sleep(2.0)
            await pilot.pause()
            (OUT / f"{name}.svg").write_text(app.export_screenshot(title="kvscope demo"), encoding="utf-8")
            sys.stderr.write(f"{name}.svg\n")


async def wait(app: KvscopeApp, pilot: Pilot[None], reached: Callable[[View], bool], name: str) -> None:
    """Until the newest view is of that stage; TimeoutError names the stage that did not come."""
    for _ in range(int(LIMIT_S / 0.2)):
        if app.view is not None and reached(app.view):
            return
        await asyncio.sleep(0.2)
    raise TimeoutError(f"the demo did not reach {name} in {LIMIT_S:.0f} s")


async def situations() -> None:
    """The first screen of every situation of ``tests/tui/situations.py``, on the captures of KVSCOPE_CAPTURES."""
    for name in NAMES:
        with session_of(name) as session:
            app = KvscopeApp(session, interval_s=600)
            async with app.run_test(size=SCREEN) as pilot:
                for _ in range(4):
                    app.poller.drain()
                    await pilot.pause()
                picture = app.export_screenshot(title=f"kvscope: {name}")
        draw(picture, OUT.parent / "situations" / f"{name}.png", 1000, 600)


def draw(svg: str, path: Path, width: int, height: int) -> None:
    """An SVG as a PNG, drawn by Chromium."""
    path.parent.mkdir(parents=True, exist_ok=True)
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        page.write_text(f'<body style="margin:0"><div style="width:{width}px">{svg}</div></body>', encoding="utf-8")
        flags = (
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={folder}/profile",
        )
        command = [browser, *flags, f"--screenshot={path}", f"--window-size={width},{height}", page.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=120)


def main() -> None:
    """Run the demo's engine and record; or draw the situations."""
    if "--situations" in sys.argv[1:]:
        asyncio.run(situations())
        return
    OUT.mkdir(parents=True, exist_ok=True)
    engine = BuiltinEngine.start(KNOBS, ("--threads", "2"))
    try:
        assert engine.ring is not None
        assert engine.control is not None
        session = Session(open_target(str(engine.ring)), load_all(), controller=engine.control)
        asyncio.run(record(KvscopeApp(Demo(session, engine.control, ACT_S), interval_s=0.5)))
        session.close()
    finally:
        engine.stop(keep_recorder=False)
    draw((OUT / "6-confirmed.svg").read_text(encoding="utf-8"), OUT.parent / "demo.png", 1300, 790)


if __name__ == "__main__":
    main()
