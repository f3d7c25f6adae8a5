"""A GGUF header as layers: llama.cpp's own keys, per layer where they are arrays.

An architecture nobody lists here is refused. Windows: ``attention.sliding_window_pattern`` where the file has it, else
what llama.cpp sets for the architecture (``set_swa_pattern`` in ``src/llama-model.cpp``): all but every n-th layer.
A layer without KV heads is recurrent where the file has ``ssm.*`` keys or a short convolution, else it keeps none.
"""

from __future__ import annotations

from typing import Any

from kvscope.errors import UsageError, nearest
from kvscope.plan.gguf import Header
from kvscope.plan.layer import AUTO, Layer, StatePart
from kvscope.plan.model import Geometry
from kvscope.plan.weights import Weights

PLAIN = (
    "llama", "qwen2", "qwen2moe", "qwen2vl", "qwen3", "qwen3moe", "qwen3vl", "qwen3vlmoe", "phi2", "phi3", "phimoe",
    "gemma", "mistral", "mistral3", "mixtral", "olmo", "olmo2", "olmoe", "granite", "granitemoe", "command-r",
    "stablelm", "starcoder2",
    "internlm2", "glm4", "glm4moe", "chatglm", "exaone", "hunyuan-moe", "hunyuan-dense", "minimax-m2", "ernie4_5",
    "ernie4_5-moe", "dots1", "bailingmoe", "bailingmoe2", "seed_oss", "smollm3", "apertus", "arcee", "nemotron", "deci",
    "falcon", "gpt2", "gptneox", "bloom", "mpt", "baichuan", "orion", "xverse", "minicpm", "openelm",
)  # fmt: skip
WINDOWED = {
    "gemma2": 2, "gemma3": 6, "gemma3n": 5, "gemma4": 6, "cohere2": 4, "gpt-oss": 2, "exaone4": 4, "exaone-moe": 4,
    "olmo2": 4, "afmoe": 4, "mimo2": 0, "step35": 0, "llama4": 4,
}  # fmt: skip
"""Every n-th layer is full; 0: the file has to say which."""
LATENT = ("deepseek2", "kimi-linear", "minicpm3", "plm", "mistral4", "glm-dsa", "deepseek32")
RECURRENT = (
    "qwen3next", "qwen35", "qwen35moe", "mamba", "mamba2", "jamba", "granitehybrid", "nemotron_h", "nemotron_h_moe",
    "falcon-h1", "lfm2", "lfm2moe", "kimi-linear", "plamo2",
)  # fmt: skip
CHUNKED = ("llama4",)


def known() -> tuple[str, ...]:
    """Architectures that can be counted."""
    return tuple(dict.fromkeys((*PLAIN, *WINDOWED, *LATENT, *RECURRENT)))


def geometry_of(header: Header) -> Geometry:
    """Return the layers of a GGUF file; UsageError for an architecture or a value that is not understood."""
    return _Model(header).geometry()


class _Model:
    def __init__(self, header: Header) -> None:
        self._header = header
        architecture = header.values.get("general.architecture")
        if not isinstance(architecture, str) or architecture not in known():
            close = nearest(str(architecture), known())
            raise UsageError(f"{header.where}: architecture {architecture!r:.60} is not known{close}")
        self._architecture = architecture
        self._assumed: list[str] = []

    def geometry(self) -> Geometry:
        count = self._whole("block_count")
        drafts = self._maybe("nextn_predict_layers") or 0
        if count > 4096 or drafts >= count:
            raise self._wrong("block_count", count, "at most 4096 layers, more than draft layers")
        layers = tuple(self._layer(at, at >= count - drafts) for at in range(count))
        dtype = "fp16"
        width, words = self._whole("embedding_length"), self._maybe("vocab_size") or 0
        return Geometry(
            self._architecture,
            self._header.where,
            layers,
            self._maybe("context_length"),
            dtype,
            None,
            self._weights(),
            tuple(self._assumed),
            width,
            words,
            self._first("feed_forward_length") or 4 * width,
        )

    def _layer(self, at: int, draft: bool) -> Layer:
        heads = self._each("attention.head_count_kv", at)
        if heads is None:
            heads = self._each("attention.head_count", at) or 0
            if heads:
                self._note(f"attention.head_count_kv is not in the file: {heads}, as many as query heads (MHA)")
        recurrent = self._architecture in RECURRENT and (heads == 0 or self._is_recurrent(at))
        if recurrent or (heads == 0 and self._has_state()):
            return Layer(self._state_kind(), state=self._state(), stage=at, draft=draft)
        if heads == 0:
            return Layer("none", stage=at, draft=draft)
        if self._architecture in LATENT and self._maybe("attention.kv_lora_rank"):
            return self._latent(at, draft)
        shared = self._maybe("attention.shared_kv_layers") or 0
        window = self._window(at)
        swa = "_swa" if window and self._maybe("attention.key_length_swa") else ""
        key = self._maybe(f"attention.key_length{swa}") or self._head_size(at)
        value = self._maybe(f"attention.value_length{swa}") or key
        kind = "shared" if shared and at >= self._whole("block_count") - shared else "full"
        if window and kind == "full":
            kind = "window"
        query = self._each("attention.head_count", at) or heads
        state = self._state() if self._architecture == "falcon-h1" else ()
        return Layer(kind, heads, key, value, window, query, state=state, stage=at, draft=draft)

    def _latent(self, at: int, draft: bool) -> Layer:
        index = self._maybe("attention.indexer.key_length") or 0
        return Layer(
            "dsa" if index else "mla",
            query_heads=self._each("attention.head_count", at) or 1,
            latent=self._whole("attention.kv_lora_rank"),
            rope=self._whole("rope.dimension_count"),
            index=index,
            top_k=self._maybe("attention.indexer.top_k") or 0,
            stage=at,
            draft=draft,
        )

    def _window(self, at: int) -> int | None:
        window = self._maybe("attention.chunk_size" if self._architecture in CHUNKED else "attention.sliding_window")
        if not window:
            return None
        pattern = self._get("attention.sliding_window_pattern")
        if isinstance(pattern, list):
            if at >= len(pattern):
                raise self._wrong("attention.sliding_window_pattern", pattern, "an entry a layer")
            return window if pattern[at] else None
        if self._architecture not in WINDOWED:
            if self._architecture in PLAIN:
                self._note(f"attention.sliding_window {window} is not used by llama.cpp for {self._architecture}")
                return None
            raise self._wrong("attention.sliding_window", window, "an architecture whose windows are known")
        period = pattern if isinstance(pattern, int) and pattern > 0 else WINDOWED[self._architecture]
        if period == 0:
            raise self._wrong("attention.sliding_window_pattern", pattern, "an array, one entry a layer")
        return None if (at + 1) % period == 0 else window

    def _is_recurrent(self, at: int) -> bool:
        interval = self._maybe("full_attention_interval")
        if self._architecture in ("qwen3next", "qwen35", "qwen35moe"):
            return (at + 1) % (interval or 4) != 0
        return self._architecture in ("mamba", "mamba2")

    def _has_state(self) -> bool:
        return bool(self._maybe("ssm.inner_size") or self._maybe("shortconv.l_cache"))

    def _state_kind(self) -> str:
        if self._maybe("shortconv.l_cache"):
            return "conv"
        return "linear" if self._architecture in ("qwen3next", "qwen35", "qwen35moe", "kimi-linear") else "mamba"

    def _state(self) -> tuple[StatePart, ...]:
        """As llama.cpp sizes ``n_embd_r`` and ``n_embd_s``."""
        if kernel := self._maybe("shortconv.l_cache"):
            return (StatePart("conv", 1, self._whole("embedding_length"), kernel),)
        if self._architecture == "kimi-linear":
            size = self._whole("kda.head_dim")
            heads = self._each("attention.head_count", 0) or 1
            columns = self._whole("ssm.conv_kernel")
            return (StatePart("recurrent", heads, size * size, dtype=AUTO), StatePart("conv", heads, 3 * size, columns))
        inner, state = self._whole("ssm.inner_size"), self._whole("ssm.state_size")
        groups = self._maybe("ssm.group_count") or 0
        return (
            StatePart("recurrent", 1, inner * state, dtype=AUTO),
            StatePart("conv", 1, inner + 2 * groups * state, self._whole("ssm.conv_kernel")),
        )

    def _head_size(self, at: int) -> int:
        width, heads = self._whole("embedding_length"), self._each("attention.head_count", at)
        if not heads or width % heads:
            raise self._wrong("attention.head_count", heads, f"a divisor of the width {width}")
        return width // heads

    def _weights(self) -> Weights | None:
        if not self._header.tensors:
            return None
        tensors = self._header.tensors
        numbers = {tensor.name: _product(tensor.shape) for tensor in tensors}
        experts = sum(tensor.bytes for tensor in tensors if "_exps" in tensor.name)
        routed = sum(count for name, count in numbers.items() if "_exps" in name)
        count, chosen = self._maybe("expert_count") or 0, self._maybe("expert_used_count") or 0
        tied = not any(tensor.name == "output.weight" for tensor in tensors)
        table = next((tensor.bytes for tensor in tensors if tensor.name == "token_embd.weight"), 0)
        parameters = sum(numbers.values())
        active = parameters - routed + (routed * chosen // count if count else 0)
        return Weights(
            self._header.total_bytes,
            parameters,
            active,
            experts,
            0 if tied else table,
            count,
            chosen,
            "of the GGUF file",
        )

    def _get(self, key: str) -> Any:
        return self._header.values.get(f"{self._architecture}.{key}")

    def _maybe(self, key: str) -> int | None:
        value = self._get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 1 << 32:
            raise self._wrong(key, value, "a whole number")
        return value

    def _whole(self, key: str) -> int:
        value = self._maybe(key)
        if not value:
            raise self._wrong(key, value, "a positive whole number")
        return value

    def _first(self, key: str) -> int | None:
        value = self._get(key)
        found = max(value, default=None) if isinstance(value, list) else value
        return found if isinstance(found, int) and found > 0 else None

    def _each(self, key: str, at: int) -> int | None:
        """A number of one layer: the same for all, or the layer's entry of an array."""
        value = self._get(key)
        if isinstance(value, list):
            if at >= len(value):
                raise self._wrong(key, f"{len(value)} entries", "an entry a layer")
            value = value[at]
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 1 << 16:
            raise self._wrong(key, value, "a whole number of heads")
        return value

    def _note(self, text: str) -> None:
        if text not in self._assumed:
            self._assumed.append(text)

    def _wrong(self, key: str, value: object, expected: str) -> UsageError:
        return UsageError(
            f"{self._header.where}: architecture {self._architecture!r}: {key} is {value!r:.60}; expected {expected}"
        )


def _product(shape: tuple[int, ...]) -> int:
    found = 1
    for one in shape:
        found *= one
    return found
