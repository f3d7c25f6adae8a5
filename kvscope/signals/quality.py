"""Is the answer still right: counted on tokens whose right value is known."""

from __future__ import annotations

from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import signal
from kvscope.signals.window import Window


@signal(
    "right_token_share",
    unit="ratio",
    needs=("quality.tokens_right", "quality.tokens_checked"),
    help="Generated tokens that were right / tokens whose right value is known.",
)
def right_token_share(window: Window) -> Reading | Missing:
    right, checked = window.counter("quality.tokens_right"), window.counter("quality.tokens_checked")
    return window.ratio(right, checked, "ratio", "no generated token had a known right value")
