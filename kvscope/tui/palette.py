"""Colours, all from sets that colour-blind eyes tell apart; a glyph or a word always says the same."""

from __future__ import annotations

import os
from functools import lru_cache

from rich.color import Color
from rich.style import Style

from kvscope.finding import Verdict

LIGHT = os.environ.get("KVSCOPE_THEME") == "light"
"""Chosen once, before anything is drawn: ``kvscope.commands`` sets it from the settings."""

NO_COLOUR = bool(os.environ.get("NO_COLOR"))
"""Curves are then told apart by their dots."""


def _on(dark: str, light: str) -> str:
    return light if LIGHT else dark


GROUND = _on("#0f141a", "#fbfaf7")
RAISED = _on("#161d26", "#eeebe4")
CHOSEN = _on("#24354a", "#d6e4f0")
CHOSEN_AWAY = _on("#1d2731", "#e6e8e8")
LINE = _on("#2b3846", "#c9c4b8")
FOCUS = _on("#4b6a86", "#5f8db3")
FAINT = _on("#708194", "#69737c")
DIM = _on("#8a9bad", "#56616c")
TEXT = _on("#d5dee8", "#242d35")
BRIGHT = _on("#f4f8fc", "#000000")
GOOD = _on("#56b4e9", "#0b6aa8")
BAD = _on("#f0903c", "#b34700")
NOTE = _on("#e6c94c", "#7a5c00")
INK = "#0f141a"
"""Text on a coloured bar."""
BAND = _on("#2a2a1c", "#f5eecb")
"""Ground of the values at which a check says yes."""

HOT = _on("#e69f00", "#b87400")
COLD = _on("#56b4e9", "#0b6aa8")
FIRST = _on("#56b4e9", "#0b6aa8")
SECOND = _on("#cc9ad6", "#8a3f9c")
TARGET = _on("#e6c94c", "#7a5c00")

# Cool: the model's own work. Warm: the price of reaching compressed KV. Grey: everything else.
PARTS: dict[str, str] = {
    "host": "#76869a",
    "linear": "#2f77b5",
    "attend": "#63bdea",
    "attend_hot": "#63bdea",
    "attend_cold": "#9fd8f2",
    "index": "#e6c94c",
    "gather": "#e0762f",
    "decompress": "#b04a3a",
    "transfer": "#c98bb9",
    "sample": "#4fa58a",
    "queue": "#8a6d9e",
    "prefill": "#4fa58a",
    "decode": "#2f77b5",
    "idle": "#3a4754",
    "unaccounted": "#a9b4bf",
    "pages": "#2f77b5",
    "overhead": "#e6c94c",
    "stranded": "#e0762f",
    "free": "#5b6b7c",
    "hot": HOT,
    "cold": COLD,
}
_SIXTEEN = {
    "host": "#aaaaaa",
    "linear": "#5555ff",
    "attend": "#55ffff",
    "attend_hot": "#55ffff",
    "attend_cold": "#00aaaa",
    "index": "#ffff55",
    "gather": "#ff5555",
    "decompress": "#aa0000",
    "transfer": "#ff55ff",
    "sample": "#55ff55",
    "queue": "#aa00aa",
    "prefill": "#55ff55",
    "decode": "#5555ff",
    "idle": "#555555",
    "unaccounted": "#ffffff",
    "pages": "#5555ff",
    "overhead": "#ffff55",
    "stranded": "#ff5555",
    "free": "#aaaaaa",
    "hot": "#ffff55",
    "cold": "#55ffff",
}
SPARE_PARTS = ("#8f7ac2", "#7fb069", "#b8866b")

VERDICT_COLOUR: dict[Verdict, str] = {
    "confirmed": BAD,
    "likely": BAD,
    "possible": NOTE,
    "unexplained": NOTE,
    "needs_data": DIM,
    "refuted": DIM,
    "silent": GOOD,
}
VERDICT_GLYPH: dict[Verdict, str] = {
    "confirmed": "◆",
    "likely": "▲",
    "possible": "△",
    "unexplained": "?",
    "needs_data": "…",
    "refuted": "✗",
    "silent": "✓",
}

# Anchors of cividis: evenly rising lightness, so it also reads in grey.
_RAMP = (
    (0x12, 0x2A, 0x4E),
    (0x3B, 0x49, 0x6C),
    (0x65, 0x67, 0x70),
    (0x94, 0x8E, 0x77),
    (0xC8, 0xB8, 0x66),
    (0xFD, 0xE7, 0x45),
)
RAMP_STEPS = 24


@lru_cache(maxsize=4096)
def paint(colour: str = TEXT, ground: str | None = None, bold: bool = False) -> Style:
    """A cached style, so that unchanged cells compare equal by identity."""
    return Style(color=Color.parse(colour), bgcolor=Color.parse(ground) if ground else None, bold=bold or None)


@lru_cache(maxsize=1024)
def over(style: Style, ground: str) -> Style:
    """The style on another ground, cached for the same reason."""
    return style + Style(bgcolor=Color.parse(ground))


@lru_cache(maxsize=RAMP_STEPS + 1)
def ramp(step: int) -> str:
    """Colour of one of ``RAMP_STEPS`` levels, 0 lowest, of the sequential scale."""
    at = min(max(step, 0), RAMP_STEPS - 1) / (RAMP_STEPS - 1) * (len(_RAMP) - 1)
    low = min(int(at), len(_RAMP) - 2)
    part = at - low
    mixed = (round(a + (b - a) * part) for a, b in zip(_RAMP[low], _RAMP[low + 1], strict=True))
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


def use_sixteen() -> None:
    """Give every part of a token's time one of a terminal's sixteen colours: the nearest ones would be the same."""
    PARTS.update(_SIXTEEN)


def curve_colour(name: str, position: int) -> str:
    """Colour of a chart's line: by what it is where that has a colour of its own, else by its place."""
    own = {"hot_reads": HOT, "cold_reads": COLD}.get(name)
    return own or (FIRST, SECOND, NOTE, GOOD)[position % 4]


def part_colour(name: str, position: int = 0) -> str:
    """Colour of a part of a token's time; names nobody foresaw take a spare one."""
    return PARTS.get(name, SPARE_PARTS[position % len(SPARE_PARTS)])
