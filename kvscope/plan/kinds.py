"""What one layer keeps and reads of a request: one entry of ``KINDS`` a kind of layer, by its name.

A kind says how many stored rows a request of some length keeps and reads (``rows``), and where its rows or index keys
are stored unlike plain heads, what one takes (``row_bytes``, ``index_bytes``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvscope.plan.forms import KvForms, index_row_bytes
from kvscope.plan.layer import Layer

RECURRENT = "a recurrent state and a short convolution's past; nothing grows with the context"
ROPE_BYTES = 2
"""Of each number of a latent row's RoPE part, which stays at 16 bits in every form."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows that a request keeps and that one decode step reads.

    ``growing`` come with the context, ``fixed`` are kept from the first token on (a window that is reserved whole);
    ``index``: keys of a sparse index, kept, and read all of them; ``read``: rows read.
    """

    growing: int = 0
    fixed: int = 0
    read: int = 0
    index: int = 0


def _every_token(layer: Layer, context: int) -> Rows:
    """A row a token; all are read, or the ``top_k`` that an index chooses. An index drops nothing."""
    read = min(context, layer.top_k) if layer.top_k else context
    return Rows(growing=context, read=read, index=context if layer.index else 0)


def _newest(layer: Layer, context: int) -> Rows:
    """Grows until the window (or the chunk) is full, then stays."""
    kept = min(context, layer.window or context)
    return Rows(growing=kept, read=kept)


def _groups_and_window(layer: Layer, context: int) -> Rows:
    """A row, and an index key where the groups read are chosen, with every full group of tokens; the window beside."""
    groups, window = context // layer.ratio, layer.window or 0
    chosen = min(groups, layer.top_k) if layer.top_k else groups
    index = groups if layer.index else 0
    return Rows(growing=groups, fixed=window, read=min(context, window) + chosen, index=index)


def _window_alone(layer: Layer, context: int) -> Rows:
    """Holds a window that is reserved whole."""
    window = layer.window or 0
    return Rows(fixed=window, read=min(context, window))


def _nothing(layer: Layer, context: int) -> Rows:
    """Keeps no rows: the state is all there is, if anything."""
    return Rows()


def _of_an_earlier_layer(layer: Layer, context: int) -> Rows:
    """Keeps nothing, reads what the layer that it shares with keeps."""
    return Rows(read=min(context, layer.window) if layer.window else context)


def _heads(layer: Layer, forms: KvForms, tp: int) -> int:
    """Keys and values of the heads that one rank holds."""
    heads = layer.heads_on_rank(tp)
    return forms.key.bytes_of(layer.key_dim, heads) + forms.value.bytes_of(layer.value_dim, heads)


def _latent(layer: Layer, forms: KvForms, tp: int) -> int:
    """One latent vector with its RoPE key; whole on every rank, because every head needs it."""
    return forms.key.bytes_of(layer.latent + layer.rope)


def _scaled_latent(layer: Layer, forms: KvForms, tp: int) -> int:
    """In 8 bits one 4-byte scale per 128 numbers: 512 + 16 + 128 = 656 bytes (vLLM ``fp8_ds_mla``; SGLang the same)."""
    if forms.key.wide:
        return _latent(layer, forms, tp)
    return forms.key.bytes_of(layer.latent) + 4 * -(-layer.latent // 128) + ROPE_BYTES * layer.rope


def _shared_head(layer: Layer, forms: KvForms, tp: int) -> int:
    """DeepSeek V4: one shared head whose key is its value; whole on every rank.

    Below 16 bits one scale byte per 64 numbers that are not RoPE's, padded to 8: 448 + 128 + 8 = 584 bytes.
    """
    if forms.key.wide:
        return forms.key.bytes_of(layer.key_dim)
    plain = layer.key_dim - layer.rope
    return forms.key.bytes_of(plain) + 8 * -(-plain // (64 * 8)) + ROPE_BYTES * layer.rope


def _index_row(layer: Layer, forms: KvForms) -> int:
    return index_row_bytes(forms.index, layer.index)


def _index_as_keys(layer: Layer, forms: KvForms) -> int:
    """One vector in the format of the keys, without scales of its own."""
    return forms.key.bytes_of(layer.index)


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of layer: what it keeps, in a line, and its arithmetic."""

    says: str
    rows: Callable[[Layer, int], Rows]
    row_bytes: Callable[[Layer, KvForms, int], int] = _heads
    index_bytes: Callable[[Layer, KvForms], int] = _index_row


KINDS = {
    "full": Kind("every token keeps keys and values of every KV head", _every_token),
    "block_sparse": Kind(  # MiniMax M3
        "every token keeps keys and values and an index key; the chosen blocks are read",
        _every_token,
        index_bytes=_index_as_keys,
    ),
    "window": Kind("only the newest tokens of a window keep keys and values", _newest),
    "chunk": Kind("only the tokens of the current chunk keep keys and values", _newest),  # Llama 4
    "shared": Kind("reads the KV of an earlier layer, keeps none", _of_an_earlier_layer),  # Gemma 3n and 4, CLA, YOCO
    "mla": Kind(
        "every token keeps one latent vector and one RoPE key, shared by all heads, on every rank",
        _every_token,
        _latent,
    ),
    "dsa": Kind(  # DeepSeek V3.2
        "every token keeps a latent row and an index key; reads are sparse, memory is not", _every_token, _scaled_latent
    ),
    "csa": Kind(  # DeepSeek V4, ratio 4
        "one latent row and one index key per group of tokens, a window of whole rows, a compressor's state",
        _groups_and_window,
        _shared_head,
    ),
    "hca": Kind(  # DeepSeek V4, ratio 128: no index, all rows read
        "one latent row per large group of tokens, a window of whole rows, a compressor's state",
        _groups_and_window,
        _shared_head,
    ),
    "latent_window": Kind(  # DeepSeek V4, ratio 0
        "a window of latent rows; nothing grows with the context", _window_alone, _shared_head
    ),
    "linear": Kind(RECURRENT, _nothing),  # gated delta rule, KDA, lightning
    "mamba": Kind(RECURRENT, _nothing),  # 1 by channels, 2 by heads
    "rwkv": Kind("a matrix a head and the token before; nothing grows with the context", _nothing),
    "conv": Kind("the last few inputs of a short convolution; nothing grows with the context", _nothing),  # LFM2
    "none": Kind("no attention, no cache", _nothing),  # an MLP or expert block that is counted as a layer
}


def rows(layer: Layer, context: int) -> Rows:
    """Return how many rows a request of ``context`` tokens keeps and a decode step reads."""
    return KINDS[layer.kind].rows(layer, context)


def row_bytes(layer: Layer, forms: KvForms, tp: int = 1) -> int:
    """Return what one stored row takes on one of ``tp`` ranks, without an index key."""
    return KINDS[layer.kind].row_bytes(layer, forms, tp)


def index_bytes(layer: Layer, forms: KvForms) -> int:
    """Return what one key of the layer's sparse index takes; 0 where it has none. Whole on every rank."""
    return KINDS[layer.kind].index_bytes(layer, forms) if layer.index else 0
