"""Is the answer still right: counted on tokens whose right value is known, or scored by a benchmark."""

from __future__ import annotations

from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import signal
from kvscope.signals.window import Window

_UNCHECKED = "no generated token has a known right value"


@signal(
    "right_token_share",
    unit="ratio",
    needs=("quality.tokens_right", "quality.tokens_checked"),
    help="Generated tokens that were right / tokens whose right value is known.",
)
def right_token_share(window: Window) -> Reading | Missing:
    checked = window.counter("quality.tokens_checked")
    return window.ratio(window.counter("quality.tokens_right"), checked, "ratio", _UNCHECKED)


@signal(
    "later_right_share",
    unit="ratio",
    needs=("quality.later_tokens_right", "quality.later_tokens_checked"),
    help="As right_token_share, of turns after the first only.",
)
def later_right_share(window: Window) -> Reading | Missing:
    checked = window.counter("quality.later_tokens_checked")
    return window.ratio(window.counter("quality.later_tokens_right"), checked, "ratio", _UNCHECKED)


@signal(
    "quality_score",
    unit="ratio",
    needs=("quality.score", "quality.tokens_right", "quality.tokens_checked"),
    help="Share of a benchmark answered right; the share of right tokens where there is no benchmark.",
)
def quality_score(window: Window) -> Reading | Missing:
    score = window.mean("quality.score", "ratio")
    if isinstance(score, Reading):
        return score
    tokens = right_token_share(window)
    return tokens if isinstance(tokens, Reading) else score


@signal("perplexity", unit="ppl", needs=("quality.perplexity",), help="Perplexity on a fixed text.")
def perplexity(window: Window) -> Reading | Missing:
    return window.mean("quality.perplexity", "ppl")


@signal(
    "quality_falls_with_length",
    unit="flag",
    needs=("quality.falls_with_length",),
    help="1 where answers get worse the longer they are.",
)
def quality_falls_with_length(window: Window) -> Reading | Missing:
    return window.setting_reading("quality.falls_with_length", "flag")
