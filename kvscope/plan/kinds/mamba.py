"""State-space layers of hybrid models: Mamba 2 by heads (Bamba, Granite, Nemotron-H), Mamba 1 by channels (Jamba)."""

from __future__ import annotations

from kvscope.plan.config import ModelConfig
from kvscope.plan.dtypes import Widths
from kvscope.plan.kinds._base import Held

SAYS = "a recurrent state and a short convolution's past; nothing grows with the context"
STATE_BYTES, PAST_BYTES = 4, 2


def held(config: ModelConfig, layer: int, context: int, widths: Widths) -> Held:
    """Hold the state and the past of the convolution."""
    state = config.whole("mamba_d_state", "ssm_state_size")
    past = config.whole("mamba_d_conv", "conv_kernel")
    if config.has("mamba_n_heads") or config.has("mamba_num_heads"):
        inner = config.whole("mamba_n_heads", "mamba_num_heads") * config.whole("mamba_d_head", "mamba_head_dim")
        channels = inner + 2 * config.whole("mamba_n_groups", "n_groups") * state
    else:
        inner = channels = config.whole("mamba_expand") * config.whole("hidden_size")
    return Held(0, inner * state * STATE_BYTES + channels * past * PAST_BYTES)
