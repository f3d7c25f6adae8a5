"""Is the answer still right: counted on tokens whose right value is known, or scored by a benchmark."""

from __future__ import annotations

from kvscope.signals.reading import Missing, Reading
from kvscope.signals.registry import signal
from kvscope.signals.window import Window

_UNCHECKED = "no generated token has a known right value"
_NOT_LOOKED = "no token's margin was looked at: knob margin_every of the built-in engine"
_NO_SHADOW = "no request was run again against the full cache: knob shadow_every of the built-in engine"


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


@signal(
    "margin",
    unit="logits",
    needs=("quality.margin_sum", "quality.margin_tokens"),
    help="By how much a generated token leads the next best one, on average: falls before accuracy does.",
)
def margin(window: Window) -> Reading | Missing:
    looked = window.counter("quality.margin_tokens")
    return window.ratio(window.counter("quality.margin_sum"), looked, "logits", _NOT_LOOKED)


@signal(
    "narrow_token_share",
    unit="ratio",
    needs=("quality.narrow_tokens", "quality.margin_tokens"),
    help="Generated tokens that lead by less than one logit: those that small errors can turn.",
)
def narrow_token_share(window: Window) -> Reading | Missing:
    looked = window.counter("quality.margin_tokens")
    return window.ratio(window.counter("quality.narrow_tokens"), looked, "ratio", _NOT_LOOKED)


@signal(
    "shadow_agreement",
    unit="ratio",
    needs=("quality.shadow_agreed", "quality.shadow_tokens"),
    help="Generated tokens of sampled requests that the full cache would have said too.",
)
def shadow_agreement(window: Window) -> Reading | Missing:
    compared = window.counter("quality.shadow_tokens")
    return window.ratio(window.counter("quality.shadow_agreed"), compared, "ratio", _NO_SHADOW)


@signal(
    "shadow_kl",
    unit="nats",
    needs=("quality.shadow_kl_sum", "quality.shadow_tokens"),
    help="Nats a token by which sampled requests differ from what the full cache says to the same words.",
)
def shadow_kl(window: Window) -> Reading | Missing:
    compared = window.counter("quality.shadow_tokens")
    return window.ratio(window.counter("quality.shadow_kl_sum"), compared, "nats", _NO_SHADOW)


@signal(
    "shadow_margin_kept",
    unit="ratio",
    needs=("quality.shadow_margin_sum", "quality.shadow_full_margin_sum"),
    help="Lead of sampled requests' tokens / their lead with the full cache.",
)
def shadow_margin_kept(window: Window) -> Reading | Missing:
    full = window.counter("quality.shadow_full_margin_sum")
    return window.ratio(window.counter("quality.shadow_margin_sum"), full, "ratio", _NO_SHADOW)


@signal(
    "answers_kept",
    unit="ratio",
    needs=("quality.tokens_right", "quality.tokens_checked", "quality.shadow_agreed", "quality.shadow_tokens"),
    help="right_token_share; where no right token is known, shadow_agreement.",
)
def answers_kept(window: Window) -> Reading | Missing:
    right = right_token_share(window)
    if isinstance(right, Reading):
        return right
    agreed = shadow_agreement(window)
    return agreed if isinstance(agreed, Reading) else right


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


@signal(
    "quality_falls_after_load",
    unit="flag",
    needs=("quality.falls_after_load",),
    help="1 where answers are bad only of requests whose KV came from a slower tier; computed anew they are right.",
)
def quality_falls_after_load(window: Window) -> Reading | Missing:
    return window.setting_reading("quality.falls_after_load", "flag")
