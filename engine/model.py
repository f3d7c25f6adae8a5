"""A Llama-family decoder over a flat list of tokens; who attends to what is the caller's business.

The model has no batch dimension and no cache: `forward` takes N tokens of any mixture of requests and calls
`attend` once per layer with rotated queries and keys. The same module serves and trains.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import MISSING, asdict, dataclass, fields
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from probes import border

INIT_STD = 0.02
LISTS = {"rope_layers", "windows", "rope_divisors"}


@dataclass(frozen=True)
class ModelConfig:
    """The shape of a decoder; `rope_layers[i]` says whether layer i rotates its queries and keys.

    `windows[i]` is how many tokens layer i sees, the newest included (0: all; empty: all in every layer);
    `rope_divisors` [head_dim / 2] divide the rotation frequencies of a model stretched to longer contexts.
    """

    vocab_size: int
    hidden: int
    layers: int
    q_heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    rope_base: float
    norm_eps: float
    rope_layers: tuple[bool, ...]
    max_context: int
    tied: bool = True
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: bool = False
    windows: tuple[int, ...] = ()
    rope_divisors: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        sizes = ("vocab_size", "hidden", "layers", "q_heads", "kv_heads", "head_dim", "ffn", "max_context")
        for name in sizes:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"model config: {name} is {value!r}; expected a whole number of at least 1")
        for name in ("rope_base", "norm_eps"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
                raise ValueError(f"model config: {name} is {value!r}; expected a positive number")
        if self.q_heads % self.kv_heads:
            raise ValueError(
                f"model config: q_heads is {self.q_heads}; expected a multiple of kv_heads ({self.kv_heads})"
            )
        if self.head_dim % 2:
            raise ValueError(f"model config: head_dim is {self.head_dim}; expected an even number")
        if len(self.rope_layers) != self.layers or not all(isinstance(on, bool) for on in self.rope_layers):
            raise ValueError(f"model config: rope_layers is {self.rope_layers!r}; expected {self.layers} true or false")
        if self.windows and (len(self.windows) != self.layers or min(self.windows) < 0):
            raise ValueError(f"model config: windows is {self.windows!r}; expected {self.layers} numbers of tokens")
        if self.rope_divisors and len(self.rope_divisors) != self.head_dim // 2:
            raise ValueError(f"model config: {len(self.rope_divisors)} rope_divisors; expected {self.head_dim // 2}")

    @classmethod
    def from_json(cls, text: str) -> ModelConfig:
        """Parse what `to_json` wrote; ValueError names a key that is unknown, missing or wrong."""
        try:
            values: Any = border.document(text, "a model's config")
        except border.Refused as error:
            raise ValueError(f"model config: {error}") from None
        if not isinstance(values, dict):
            raise ValueError(f"model config: expected a JSON object, not {type(values).__name__}")
        known = [field.name for field in fields(cls)]
        for name in values:
            if name not in known:
                near = get_close_matches(name, known, n=1)
                raise ValueError(
                    f"model config: unknown key {name!r}" + (f"; did you mean {near[0]!r}?" if near else "")
                )
        missing = [field.name for field in fields(cls) if field.default is MISSING and field.name not in values]
        if missing:
            raise ValueError(f"model config: missing {', '.join(missing)}")
        for name in LISTS & values.keys():
            if not isinstance(values[name], list):
                raise ValueError(f"model config: {name} is {values[name]!r}; expected a list")
        values.update({name: tuple(values[name]) for name in LISTS & values.keys()})
        return cls(**values)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"


class Attend(Protocol):
    """Stores k and v of N new tokens and attends to whatever the caller's cache and policy allow.

    q [N, q_heads, head_dim], k and v [N, kv_heads, head_dim], already rotated; result [N, q_heads, head_dim].
    The softmax scale head_dim ** -0.5 is the implementation's to apply.
    """

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor: ...


Turn = Callable[[Tensor, tuple[Tensor, Tensor]], Tensor]
"""`rotate`, or the same by other means."""


class RMSNorm(nn.Module):
    """Scale the last dimension to unit root mean square, times a learned gain."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


class Attention(nn.Module):
    """Project N tokens to queries, keys and values, rotate, attend, project back."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.head_dim = config.head_dim
        self.widths = [config.q_heads * config.head_dim, *[config.kv_heads * config.head_dim] * 2]
        self.rope = config.rope_layers[layer]
        self.turn: Turn = rotate
        self.qkv = nn.Linear(config.hidden, sum(self.widths), bias=config.qkv_bias)
        self.out = nn.Linear(self.widths[0], config.hidden, bias=config.out_bias)
        self.q_norm = RMSNorm(config.head_dim, config.norm_eps) if config.qk_norm else None
        self.k_norm = RMSNorm(config.head_dim, config.norm_eps) if config.qk_norm else None

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor], attend: Attend) -> Tensor:
        q, k, v = (part.unflatten(-1, (-1, self.head_dim)) for part in self.qkv(x).split(self.widths, dim=-1))
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        if self.rope:
            q, k = self.turn(q, rotation), self.turn(k, rotation)
        mixed: Tensor = self.out(attend(self.layer, q, k, v).flatten(1))
        return mixed


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate_up = nn.Linear(config.hidden, 2 * config.ffn, bias=False)
        self.down = nn.Linear(config.ffn, config.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        result: Tensor = self.down(F.silu(gate) * up)
        return result


class Layer(nn.Module):
    """Attention and feed-forward, each normed before and added to the stream."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.hidden, config.norm_eps)
        self.attention = Attention(config, layer)
        self.ffn_norm = RMSNorm(config.hidden, config.norm_eps)
        self.ffn = FeedForward(config)

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor], attend: Attend) -> Tensor:
        x = x + self.attention(self.attention_norm(x), rotation, attend)
        result: Tensor = x + self.ffn(self.ffn_norm(x))
        return result


class Decoder(nn.Module):
    """The whole model; embedding and output projection are one matrix when the config says `tied`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocab_size, config.hidden)
        self.layers = nn.ModuleList(Layer(config, index) for index in range(config.layers))
        self.norm = RMSNorm(config.hidden, config.norm_eps)
        self.head: nn.Module | None = None
        if not config.tied:
            self.head = nn.Linear(config.hidden, config.vocab_size, bias=False)

    def forward(self, token_ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """token_ids and positions [N] int64 -> final normed hidden states [N, hidden]."""
        rotation = rope_angles(self.config, positions)
        x: Tensor = self.embed(token_ids)
        for layer in self.layers:
            x = layer(x, rotation, attend)
        result: Tensor = self.norm(x)
        return result

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden [M, hidden] -> [M, vocab_size]."""
        if self.head is None:
            return F.linear(hidden, self.embed.weight)
        result: Tensor = self.head(hidden)
        return result

    def init_weights(self, generator: torch.Generator) -> None:
        """Normal(0, 0.02) matrices, narrower where they write to the residual stream; gains are one, biases zero."""
        residual_std = INIT_STD / (2 * self.config.layers) ** 0.5
        for name, weight in self.named_parameters():
            if weight.dim() < 2:
                nn.init.constant_(weight, 0.0 if name.endswith("bias") else 1.0)
                continue
            std = residual_std if name.endswith(("out.weight", "down.weight")) else INIT_STD
            nn.init.normal_(weight, std=std, generator=generator)


def rope_angles(config: ModelConfig, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine, each [N, 1, head_dim / 2] float32, of every position's rotation."""
    angle = positions.to(torch.float32)[:, None, None] * frequencies(config, positions.device)
    return angle.cos(), angle.sin()


@lru_cache(maxsize=16)
def frequencies(config: ModelConfig, device: torch.device) -> Tensor:
    """float32 [head_dim / 2], made once: a step must copy nothing to a device."""
    with torch.inference_mode(False):
        half = torch.arange(config.head_dim // 2, dtype=torch.float32, device=device)
        frequency = config.rope_base ** (-half / (config.head_dim // 2))
        if config.rope_divisors:
            frequency /= torch.tensor(config.rope_divisors, device=device)
        return frequency


def rotate(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate [N, heads, head_dim]; dimension i is paired with i + head_dim / 2, as in Hugging Face checkpoints."""
    cosine, sine = rotation
    first, second = x.float().chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1).to(x.dtype)
