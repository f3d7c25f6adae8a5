"""Windows with a full layer every so often, by ``layer_types`` or by the period their class has.

Gemma 2 and 3, Cohere 2, EXAONE 4, OLMo 3, gpt-oss, AFMoE. Periods: configuration classes of transformers 5.24.0.
"""

from __future__ import annotations

from kvscope.plan.config import ModelConfig
from kvscope.plan.families import _attention
from kvscope.plan.layer import Layer

MODEL_TYPES = {
    "gemma2": 2, "gemma3_text": 6, "gemma3": 6, "cohere2": 4, "cohere2_moe": 4, "exaone4": 4, "exaone_moe": 4,
    "olmo3": 4, "gpt_oss": 2, "afmoe": 4,
}  # fmt: skip
"""Every n-th layer is full where the config gives no list."""
PERIOD_KEYS = ("sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers", "layer_switch")
MEANS_NOTHING = ("sliding_window_size",)
"""The window again (Gemma 2)."""
LETTERS = {"L": "window", "G": "full"}


def layers(config: ModelConfig) -> list[Layer]:
    """By the list, by the period, or full everywhere where the window is null."""
    period = _period(config)
    if config.has("layer_types"):
        return _attention.full_or_window(config)
    if "sliding_window" in config.values and not config.has("sliding_window"):
        return [_attention.full(config, stage) for stage in range(config.layers)]
    if isinstance(period, str):
        return _by_letters(config, period)
    return _attention.every_nth_full(config, period)


def _period(config: ModelConfig) -> int | str:
    for key in PERIOD_KEYS:
        if config.has(key):
            value = config.values[key]
            return value if isinstance(value, str) else config.whole(key)
    return MODEL_TYPES[config.model_type]


def _by_letters(config: ModelConfig, letters: str) -> list[Layer]:
    """EXAONE 4 spells its period: LLLG."""
    if not letters or set(letters) - set(LETTERS):
        raise config.refuse("sliding_window_pattern", "a number, or letters L and G")
    made = {"L": _attention.window, "G": _attention.full}
    return [made[letters[stage % len(letters)]](config, stage) for stage in range(config.layers)]
