"""Multi-head latent attention: one latent vector and one RoPE key a token, shared by all heads (DeepSeek V2, V3)."""

from __future__ import annotations

from kvscope.plan.config import ModelConfig
from kvscope.plan.dtypes import Widths
from kvscope.plan.kinds._base import Held

SAYS = "every token keeps one latent vector and one RoPE key, shared by all heads"


def numbers_per_token(config: ModelConfig) -> int:
    """Numbers of a token's latent vector with its RoPE key."""
    return config.whole("kv_lora_rank") + config.whole("qk_rope_head_dim")


def held(config: ModelConfig, layer: int, context: int, widths: Widths) -> Held:
    """Grow by one latent row a token."""
    return Held(widths.kv(context * numbers_per_token(config)))
