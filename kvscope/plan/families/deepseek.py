"""Latent attention in every layer: DeepSeek V2 and V3, Kimi K2, Mistral 4, MiniCPM 3, GLM 4.7 Flash and 5, LongCat.

With ``index_topk`` each layer has an index key too (V3.2, GLM 5), save those that ``indexer_types`` calls shared.
``num_nextn_predict_layers`` draft layers (MTP) keep KV only where an engine is told to speculate with them.
"""

from __future__ import annotations

from kvscope.plan.config import ModelConfig
from kvscope.plan.families import _attention
from kvscope.plan.layer import Layer

MODEL_TYPES = (
    "deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "kimi_k25", "mistral4", "minicpm3", "glm4_moe_lite",
    "glm_moe_dsa", "longcat_flash", "youtu", "plm", "pangu_ultra_moe", "axk1", "hy_v4", "mistral_large4",
)  # fmt: skip
WORDS = ("full_attention", "indexed_attention", "attention", "deepseek_sparse_attention")
MEANS_NOTHING = ("mla_scale_kv_lora", "mla_scale_q_lora", "index_share_for_mtp_iteration", "indexer_rope_interleave")
PER_LAYER = {"longcat_flash": 2}
"""Attention modules a layer has, where it is more than one."""


def layers(config: ModelConfig) -> list[Layer]:
    """One latent layer each, then the draft layers."""
    many = PER_LAYER.get(config.model_type, 1)
    places = config.layers if many == 1 else config.whole("num_layers", "num_hidden_layers")
    _only_known_words(config)
    found = [latent(config, stage) for stage in range(places) for _ in range(many)]
    drafts = config.maybe("num_nextn_predict_layers", least=0) or 0
    return found + [latent(config, config.layers - 1, draft=True) for _ in range(drafts)]


def _only_known_words(config: ModelConfig) -> None:
    """Refuse layer lists with other attention in them."""
    if config.has("layer_types") and set(map(str, config.values["layer_types"])) - set(WORDS):
        raise config.refuse("layer_types", f"only {', '.join(WORDS)}")
    if config.has("sliding_window"):
        raise config.refuse("sliding_window", "null: windows of latent rows are not counted")


def latent(config: ModelConfig, stage: int, draft: bool = False) -> Layer:
    """One layer of latent rows, with an index key where the model has them."""
    for key in ("head_dim", "num_key_value_heads", "v_head_dim", "qk_head_dim", "qk_nope_head_dim"):
        config.read.add(key)  # of the heads that the latent row is expanded to; nobody stores those
    index, top_k = _index(config, stage)
    return Layer(
        "dsa" if config.has("index_topk") else "mla",
        query_heads=_attention.query_heads(config),
        latent=config.whole("kv_lora_rank"),
        rope=config.whole("qk_rope_head_dim"),
        index=index,
        top_k=top_k,
        stage=stage,
        draft=draft,
    )


def _index(config: ModelConfig, stage: int) -> tuple[int, int]:
    """Numbers of the layer's own index key, and how many rows are read."""
    config.read.add("index_n_heads")
    if not config.has("index_topk"):
        return 0, 0
    own = _has_index(config, stage)
    return (config.whole("index_head_dim") if own else 0), config.whole("index_topk")


def _has_index(config: ModelConfig, stage: int) -> bool:
    """Whether a layer chooses for itself, and keeps keys to choose by; others take what the layer before chose."""
    config.read.update({"index_topk_freq", "index_skip_topk_offset", "index_topk_pattern"})
    if config.has("indexer_types"):
        words = config.per_layer("indexer_types")
        if set(map(str, words)) - {"full", "shared"}:
            raise config.refuse("indexer_types", "full and shared, one a layer")
        return str(words[stage]) == "full"
    if config.has("index_topk_pattern"):
        letters = config.values["index_topk_pattern"]
        if not isinstance(letters, str) or set(letters) - {"F", "S"} or len(letters) < config.layers:
            raise config.refuse("index_topk_pattern", "a letter F or S for each layer")
        return letters[stage] == "F"
    every, skipped = config.maybe("index_topk_freq") or 1, config.maybe("index_skip_topk_offset", least=0)
    return max(stage - (2 if skipped is None else skipped) + 1, 0) % every == 0
