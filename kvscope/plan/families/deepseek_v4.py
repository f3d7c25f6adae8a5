"""DeepSeek V4: every layer stores one shared head; by ``compress_ratios`` also rows that stand for 4 or 128 tokens.

Ratio 4 (CSA) has an index, and its compressor's groups overlap: it collects twice the ratio in tokens, at twice the
width. A compressor collects in 32 bits, a value and a weight for each number.
"""

from __future__ import annotations

from kvscope.plan.config import ModelConfig
from kvscope.plan.families import _attention
from kvscope.plan.layer import Layer, StatePart

MODEL_TYPES = ("deepseek_v4", "deepseek_ref")
KINDS = {0: "latent_window", 4: "csa", 128: "hca"}
WORDS = {"sliding_attention": 0, "compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
OVERLAP = 2
VALUE_AND_WEIGHT = 2


def layers(config: ModelConfig) -> list[Layer]:
    """One layer a ratio; the entries behind the last layer are of the draft."""
    for key in ("num_key_value_heads", "index_n_heads", "o_lora_rank", "compress_rates", "o_groups"):
        config.read.add(key)
    ratios = _ratios(config)
    found = [_layer(config, stage, ratio) for stage, ratio in enumerate(ratios)]
    drafts = config.maybe("num_nextn_predict_layers", least=0) or 0
    return found + [_layer(config, config.layers - 1, 0, draft=True) for _ in range(drafts)]


def _ratios(config: ModelConfig) -> list[int]:
    if config.has("compress_ratios"):
        ratios = config.per_layer("compress_ratios")
        if any(isinstance(one, bool) or not isinstance(one, int) or one not in KINDS for one in ratios):
            raise config.refuse("compress_ratios", f"known ratios: {', '.join(map(str, KINDS))}")
        return ratios
    words = config.per_layer("layer_types")
    if any(not isinstance(one, str) or one not in WORDS for one in words):
        raise config.refuse("layer_types", f"known: {', '.join(WORDS)}")
    return [WORDS[one] for one in words]


def _layer(config: ModelConfig, stage: int, ratio: int, draft: bool = False) -> Layer:
    width, index = config.whole("head_dim"), config.whole("index_head_dim") if ratio == 4 else 0
    return Layer(
        KINDS[ratio],
        kv_heads=1,
        key_dim=width,
        window=config.whole("sliding_window"),
        query_heads=_attention.query_heads(config),
        rope=config.whole("qk_rope_head_dim"),
        index=index,
        top_k=config.whole("index_topk") if index else 0,
        ratio=ratio or 1,
        state=_state(ratio, width, index),
        stage=stage,
        draft=draft,
    )


def _state(ratio: int, width: int, index: int) -> tuple[StatePart, ...]:
    if ratio == 0:
        return ()
    wide = OVERLAP if ratio == 4 else 1
    rows = wide * ratio
    parts = [StatePart("compressor", 1, rows * wide * width * VALUE_AND_WEIGHT, dtype="fp32")]
    if index:
        parts.append(StatePart("index compressor", 1, rows * wide * index * VALUE_AND_WEIGHT, dtype="fp32"))
    return tuple(parts)
