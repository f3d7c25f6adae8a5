"""Linear attention with a gated delta rule (Qwen3-Next and later): a state of fixed size instead of a cache.

The state is kept in 32 bits, the short convolution's past at 16, whatever the KV dtype is.
"""

from __future__ import annotations

from kvscope.plan.config import ModelConfig
from kvscope.plan.dtypes import Widths
from kvscope.plan.kinds._base import Held

SAYS = "a recurrent state and a short convolution's past; nothing grows with the context"
STATE_BYTES, PAST_BYTES = 4, 2


def held(config: ModelConfig, layer: int, context: int, widths: Widths) -> Held:
    """Hold the state of all value heads and the past of the convolution."""
    heads, key = config.whole("linear_num_value_heads"), config.whole("linear_key_head_dim")
    value = config.whole("linear_value_head_dim")
    channels = 2 * config.whole("linear_num_key_heads") * key + heads * value
    past = channels * config.whole("linear_conv_kernel_dim") * PAST_BYTES
    return Held(0, heads * key * value * STATE_BYTES + past)
