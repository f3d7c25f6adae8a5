"""The first line: what is watched, which segments are compared, whether it still runs."""

from __future__ import annotations

import re
import time
from pathlib import PurePath

from textual.app import ComposeResult

from kvscope.format import clip, duration
from kvscope.tui.palette import BAD, BRIGHT, DIM, FAINT, GOOD, NOTE, TEXT, paint
from kvscope.tui.panels.panel import Panel
from kvscope.tui.widgets.canvas import Canvas, Line
from kvscope.view import View

_STALE_S = 5.0
SAVED = ("recording", "series", "log", "trace", "figures")
"""Kinds of source that were saved: playing one is no watching of an engine."""


class TargetLine(Canvas):
    """Target on the left, segments in the middle, state and time on the right."""

    view: View | None = None

    def draw(self, width: int, height: int) -> list[Line]:
        row = Line(width)
        if self.view is None:
            return [row]
        view = self.view
        state, colour = state_of(view)
        clock = time.strftime("%H:%M:%S", time.localtime(view.now_s)) if view.now_s else ""
        right = width - 1
        for text, style in ((clock, paint(DIM)), (state, paint(colour, bold=True))):
            row.put_right(right, text, style)
            right -= len(text) + 2
        if view.recording:
            row.put_right(right, "◉ rec", paint(BAD))
            right -= 7
        row.put(1, "kvscope", paint(BRIGHT, bold=True))
        compared = comparison_of(view)
        room = right - 10
        place = view.target if "://" in view.target else _engine(PurePath(view.target).name)
        only = f"replica {view.only} alone (Esc: all)" if view.only else ""
        parts = [part for part in (only, place, *named(view.tags)) if part] or [view.kind]
        compared = clip(compared, max(room - min(len(parts[0]), room // 2) - 3, 0))
        row.put_right(right, compared, paint(TEXT))
        room -= len(compared) + (3 if compared else 0)
        while len(parts) > 1 and len(" · ".join(parts)) > room:
            parts.pop()
        row.put(10, clip(" · ".join(parts), room), paint(DIM))
        for x, char in enumerate(row.chars):
            if char == "·":
                row.put(x, char, paint(FAINT))
        return [row]


class TargetPanel(Panel):
    TITLE = "Target"
    SLOT = "top"
    READS = (
        "target",
        "now_s",
        "alive",
        "paused",
        "recording",
        "ended",
        "stale_s",
        "segments",
        "tags",
        "kind",
        "past",
        "only",
    )

    def compose(self) -> ComposeResult:
        yield TargetLine()

    def show(self, view: View) -> None:
        line = self.query_one(TargetLine)
        line.view = view
        line.redraw()


def state_of(view: View) -> tuple[str, str]:
    """The word for how the source is doing, and its colour."""
    if view.paused:
        return ("‖ in the past" if view.past else "‖ paused"), NOTE
    if view.ended:
        return ("■ end of recording" if view.kind in SAVED else "■ ended"), NOTE
    if not view.alive:
        return "✗ not answering", BAD
    if view.stale_s > _STALE_S:
        return f"○ silent {duration(view.stale_s)}", NOTE
    return ("▶ replay", NOTE) if view.kind in SAVED else ("● live", GOOD)


def _engine(name: str) -> str:
    """A flight recorder by the pid it is of: ``engine-812-40317.ring`` is ``engine 812``."""
    found = re.fullmatch(r"(\w+)-(\d+)-\d+\.ring", name)
    return f"{found[1]} {found[2]}" if found else name


def named(tags: dict[str, str]) -> tuple[str, ...]:
    """The tags worth a place on the first line."""
    return tuple(tags[key] for key in ("model", "device", "policy", "kernels") if tags.get(key))


def comparison_of(view: View) -> str:
    """Which segment is compared with which."""
    current = next((span.name for span in view.segments if span.is_current), "")
    baseline = next((span.name for span in view.segments if span.is_baseline), "")
    if current and baseline:
        return f"{current} vs {baseline}"
    if len(view.segments) > 1:
        return current
    return "b sets a baseline" if current else ""
