"""The decoder against a naive recomputation, its configuration and its weights."""

import dataclasses
import math

import pytest
import torch
from safetensors.torch import save
from torch import Tensor

from engine.model import Decoder, ModelConfig
from engine.weights.random import random_weights
from engine.weights.shipped import from_safetensors

CONFIG = ModelConfig(
    vocab_size=50,
    hidden=24,
    layers=3,
    q_heads=4,
    kv_heads=2,
    head_dim=8,
    ffn=40,
    rope_base=100.0,
    norm_eps=1e-5,
    rope_layers=(True, False, True),
    max_context=64,
)
TOKENS = [3, 14, 15, 9, 26, 5, 35, 8]


class ListCache:
    """Attention over explicit per-layer lists of rows, one query and one head at a time."""

    def __init__(self) -> None:
        self.rows: dict[int, list[tuple[Tensor, Tensor]]] = {}

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        rows = self.rows.setdefault(layer, [])
        results = []
        for query, key, value in zip(q, k, v, strict=True):
            rows.append((key, value))
            heads = []
            for head, row in enumerate(query):
                kv_head = head // (q.shape[1] // k.shape[1])
                scores = torch.stack([row @ past[kv_head] for past, _ in rows]) / math.sqrt(q.shape[2])
                heads.append(scores.softmax(0) @ torch.stack([past[kv_head] for _, past in rows]))
            results.append(torch.stack(heads))
        return torch.stack(results)


def naive_hidden(model: Decoder, tokens: list[int]) -> Tensor:
    """Float64 hidden states from the state dict alone: one sequence, one position and one head at a time."""
    config, weights = model.config, {name: value.double() for name, value in model.state_dict().items()}

    def norm(x: Tensor, name: str) -> Tensor:
        return x / (x.pow(2).mean() + config.norm_eps).sqrt() * weights[f"{name}.weight"]

    def turned(x: Tensor, position: int) -> Tensor:
        half, out = len(x) // 2, x.clone()
        for i in range(half):
            angle = position * config.rope_base ** (-i / half)
            out[i] = x[i] * math.cos(angle) - x[i + half] * math.sin(angle)
            out[i + half] = x[i + half] * math.cos(angle) + x[i] * math.sin(angle)
        return out

    stream = [weights["embed.weight"][token] for token in tokens]
    for layer in range(config.layers):
        name, cache, width = f"layers.{layer}", [], config.head_dim
        for position, x in enumerate(stream):
            heads = (weights[f"{name}.attention.qkv.weight"] @ norm(x, f"{name}.attention_norm")).view(-1, width)
            q, k, v = heads.split([config.q_heads, config.kv_heads, config.kv_heads])
            if config.rope_layers[layer]:
                q, k = (torch.stack([turned(row, position) for row in part]) for part in (q, k))
            cache.append((k, v))
            mixed = []
            for head in range(config.q_heads):
                shared = head * config.kv_heads // config.q_heads
                scores = torch.stack([q[head] @ key[shared] for key, _ in cache]) * width**-0.5
                mixed.append(scores.softmax(0) @ torch.stack([value[shared] for _, value in cache]))
            x = x + weights[f"{name}.attention.out.weight"] @ torch.cat(mixed)
            gate, up = (weights[f"{name}.ffn.gate_up.weight"] @ norm(x, f"{name}.ffn_norm")).chunk(2)
            stream[position] = x + weights[f"{name}.ffn.down.weight"] @ (gate * gate.sigmoid() * up)
    return torch.stack([norm(x, "norm") for x in stream])


@pytest.fixture(scope="module")
def model() -> Decoder:
    decoder = random_weights(CONFIG, seed=1)
    generator = torch.Generator().manual_seed(2)
    for weight in decoder.parameters():
        weight.copy_(weight + 0.3 * torch.randn(weight.shape, generator=generator))
    return decoder


def run(model: Decoder, tokens: list[int], first: int, cache: ListCache) -> Tensor:
    return model(torch.tensor(tokens), torch.arange(first, first + len(tokens)), cache)


def test_one_pass_equals_a_naive_recomputation(model: Decoder):
    hidden = run(model, TOKENS, 0, ListCache())
    torch.testing.assert_close(hidden, naive_hidden(model, TOKENS).float(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("cuts", [(8,), (3, 8), (1, 2, 3, 4, 5, 6, 7, 8)])
def test_chunks_with_a_cache_equal_one_pass(model: Decoder, cuts: tuple[int, ...]):
    whole, cache = run(model, TOKENS, 0, ListCache()), ListCache()
    parts = [run(model, TOKENS[a:b], a, cache) for a, b in zip((0, *cuts), cuts, strict=False)]
    torch.testing.assert_close(torch.cat(parts), whole, rtol=1e-4, atol=1e-5)


def test_only_rope_layers_see_positions(model: Decoder):
    config = dataclasses.replace(CONFIG, rope_layers=(False, False, False))
    blind = Decoder(config).requires_grad_(False)
    blind.load_state_dict(model.state_dict())
    assert torch.equal(run(blind, TOKENS, 0, ListCache()), run(blind, TOKENS, 20, ListCache()))
    assert not torch.allclose(run(blind, TOKENS, 0, ListCache()), run(model, TOKENS, 0, ListCache()), atol=1e-2)


def test_rope_depends_on_distance_alone(model: Decoder):
    torch.testing.assert_close(
        run(model, TOKENS, 0, ListCache()), run(model, TOKENS, 20, ListCache()), rtol=1e-3, atol=1e-3
    )


def test_logits_are_the_hidden_states_times_the_embedding(model: Decoder):
    hidden = torch.randn(5, CONFIG.hidden, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(model.logits(hidden), hidden @ model.embed.weight.T)


def test_a_config_survives_json():
    assert ModelConfig.from_json(CONFIG.to_json()) == CONFIG


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kv_heads": 3}, "q_heads is 4; expected a multiple of kv_heads"),
        ({"layers": 0}, "layers is 0; expected a whole number"),
        ({"hidden": True}, "hidden is True"),
        ({"head_dim": 7}, "head_dim is 7; expected an even number"),
        ({"rope_layers": (True,)}, "expected 3 true or false"),
        ({"norm_eps": 0.0}, "norm_eps is 0.0; expected a positive number"),
    ],
)
def test_a_config_that_cannot_be_is_refused_by_field(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(CONFIG, **change)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "no JSON"),
        ("[]", "expected a JSON object, not list"),
        ('{"hiden": 1}', "unknown key 'hiden'; did you mean 'hidden'"),
        ('{"hidden": 1}', "missing vocab_size"),
        (CONFIG.to_json().replace('"layers": 3', '"layers": "3"'), "layers is '3'"),
    ],
)
def test_json_that_is_no_config_is_refused_by_key(text, message):
    with pytest.raises(ValueError, match=message):
        ModelConfig.from_json(text)


def test_random_weights_come_from_their_seed_alone():
    first, second, other = (random_weights(CONFIG, seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["embed.weight"], other["embed.weight"])


def test_weights_are_loaded_as_float32_without_gradients(model: Decoder):
    halves = save({name: value.half() for name, value in model.state_dict().items()})
    loaded = from_safetensors(CONFIG, halves, "x.safetensors")
    assert not loaded.training
    assert all(weight.dtype == torch.float32 and not weight.requires_grad for weight in loaded.parameters())


def test_weights_that_do_not_match_the_config_are_refused_by_tensor(model: Decoder):
    tensors = dict(model.state_dict())
    wider = dataclasses.replace(CONFIG, ffn=48)
    with pytest.raises(ValueError, match=r"x: tensor layers\.0\.ffn\.down\.weight is \(24, 40\).*\(24, 48\)"):
        from_safetensors(wider, save(tensors), "x")
    del tensors["norm.weight"]
    with pytest.raises(ValueError, match=r"x: tensor norm\.weight is nothing"):
        from_safetensors(CONFIG, save(tensors), "x")
    with pytest.raises(ValueError, match="x: not a readable safetensors file"):
        from_safetensors(CONFIG, b"not weights", "x")
