"""A model as layers: what a request holds, what a decode step reads, what the weights weigh.

Entry points::

    model = geometry(path_or_dict)                    # Geometry; UsageError for what is not understood
    forms = model.forms("fp8")                        # KvForms; "auto" takes what the checkpoint says
    model.held(context, forms, tp=4).total_bytes      # one request of that many tokens, on one rank
    model.token_bytes(context, forms, tp=4)           # what one more token adds at that context
    model.read(context, forms, tp=4)                  # StepRead: KV, index and state bytes one request adds to a step
    model.attention_flops(context)                    # operations of attention for a token of one request, all ranks
    model.weights                                     # Weights or None: total, active, read_bytes(batch)

Bytes are those of one of ``tp`` tensor-parallel ranks with ``pp`` = 1; what a rank does not split (latent rows, index
keys) is whole on each. Draft layers (MTP) are counted only with ``drafts=True``. Formulas for what a step reads:
windows read what they keep, a sparse index reads all its keys and ``top_k`` rows, a state is read whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kvscope.errors import UsageError
from kvscope.plan import families, kinds
from kvscope.plan.config import ModelConfig, read_config
from kvscope.plan.forms import KvForms, get
from kvscope.plan.layer import AUTO, Layer, StatePart, share
from kvscope.plan.stored import checkpoint_dtype, compute_dtype
from kvscope.plan.weights import Weights, weigh

CONTEXT_KEYS = (
    "max_position_embeddings", "model_max_length", "max_sequence_length", "seq_length", "n_positions", "max_seq_len",
    "max_model_len",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes one request keeps: those that grew with its context, and those it costs from its first token on."""

    growing_bytes: int
    fixed_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        return self.growing_bytes + self.fixed_bytes


@dataclass(frozen=True, slots=True)
class StepRead:
    """Bytes that one request adds to what a decode step reads."""

    kv_bytes: int
    index_bytes: int
    state_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.kv_bytes + self.index_bytes + self.state_bytes


@dataclass(frozen=True, slots=True)
class Geometry:
    """A model's layers in order; ``assumed`` says what the config left open and how it was read.

    ``unweighed`` says why there are no ``weights``.
    """

    model_type: str
    where: str
    layers: tuple[Layer, ...]
    max_context: int | None
    dtype: str
    kv_dtype: str | None
    weights: Weights | None
    assumed: tuple[str, ...] = ()
    width: int = 0
    words: int = 0
    widest_mlp: int = 0
    unweighed: str = ""
    _alike: tuple[tuple[Layer, int], ...] = field(init=False, repr=False, compare=False, default=())
    """Layers that keep and read the same, and how many they are: figures of a step are asked for every second."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_alike", tuple(Counter(replace(one, stage=0) for one in self.layers).items()))

    def forms(self, kv: str = "auto", index: str | None = None) -> KvForms:
        """Return the forms of keys, values and index; "auto": what the checkpoint fixes, else the model's dtype."""
        return KvForms.named((self.kv_dtype or self.dtype) if kv == "auto" else kv, index)

    def counted(self, drafts: bool = False) -> tuple[Layer, ...]:
        """The layers that are counted: those of the model, and those of its draft where asked."""
        return tuple(layer for layer in self.layers if drafts or not layer.draft)

    def held(self, context: int, forms: KvForms, tp: int = 1, drafts: bool = False) -> Held:
        """Bytes that one request of ``context`` tokens keeps on one rank."""
        found = [held(layer, context, forms, tp, self.dtype) for layer in self.counted(drafts)]
        return Held(sum(one.growing_bytes for one in found), sum(one.fixed_bytes for one in found))

    def token_bytes(self, context: int, forms: KvForms, tp: int = 1, drafts: bool = False) -> float:
        """Bytes that one more token adds at ``context``, on one rank; windows that are full add none."""
        return sum(token_bytes(layer, context, forms, tp) for layer in self.counted(drafts))

    def state_bytes(self, tp: int = 1, drafts: bool = False) -> int:
        """Bytes of one request's recurrent states on one rank."""
        return sum(n * state_bytes(layer.state, self.dtype, tp) for layer, n in self._kinds(drafts))

    def read(self, context: int, forms: KvForms, tp: int = 1, drafts: bool = False) -> StepRead:
        """Bytes that one request of ``context`` tokens adds to what a decode step of one rank reads."""
        kv = index = 0
        for layer, n in self._kinds(drafts):
            rows = kinds.rows(layer, context)
            kv += n * rows.read * kinds.row_bytes(layer, forms, tp)
            index += n * rows.index * kinds.index_bytes(layer, forms)
        return StepRead(kv, index, self.state_bytes(tp, drafts))

    def attention_flops(self, context: int, drafts: bool = False) -> int:
        """Operations of attention for one token of one request over the whole model: 2 per product, scores and sums."""
        return sum(n * _flops(layer, context) for layer, n in self._kinds(drafts))

    def _kinds(self, drafts: bool) -> Iterator[tuple[Layer, int]]:
        return ((layer, n) for layer, n in self._alike if drafts or not layer.draft)


def geometry(source: Path | str | Mapping[str, Any] | ModelConfig) -> Geometry:
    """Read a config.json (path, folder, or parsed) into layers; UsageError when anything is not understood."""
    config = (
        source if isinstance(source, ModelConfig) else read_config(Path(source) if isinstance(source, str) else source)
    )
    layers = families.layers_of(config)
    dtype, kv_dtype = compute_dtype(config), checkpoint_dtype(config)
    weights, unweighed = None, ""
    try:
        weights = weigh(config, layers)
    except UsageError as error:
        unweighed = str(error)
    most = next((config.values[key] for key in CONTEXT_KEYS if isinstance(config.values.get(key), int)), None)
    if most is None:
        most = config.maybe("max_position_embeddings")
    assumed = tuple(config.assumed)
    width, words = config.maybe("hidden_size", "n_embd", "d_model") or 0, config.maybe("vocab_size") or 0
    widest = config.maybe("intermediate_size", "ffn_hidden_size") or 4 * width
    return Geometry(
        config.model_type,
        config.where,
        layers,
        most,
        dtype,
        kv_dtype,
        weights,
        assumed,
        width,
        words,
        widest,
        unweighed,
    )


def held(layer: Layer, context: int, forms: KvForms, tp: int, dtype: str) -> Held:
    """Bytes one layer keeps of a request on one rank."""
    rows, row = kinds.rows(layer, context), kinds.row_bytes(layer, forms, tp)
    growing = rows.growing * row + rows.index * kinds.index_bytes(layer, forms)
    return Held(growing, rows.fixed * row + state_bytes(layer.state, dtype, tp))


def token_bytes(layer: Layer, context: int, forms: KvForms, tp: int) -> float:
    """Bytes one more token adds to one layer at ``context``: one row, or a ``ratio``-th of one."""
    if layer.kind in ("window", "chunk") and layer.window and context >= layer.window:
        return 0.0
    if kinds.rows(layer, context + layer.ratio).growing == 0:
        return 0.0
    return (kinds.row_bytes(layer, forms, tp) + kinds.index_bytes(layer, forms)) / layer.ratio


def state_bytes(parts: Iterable[StatePart], dtype: str, tp: int = 1) -> int:
    """Bytes of a state on one rank, as engines keep it: a convolution's past is one column less than its kernel."""
    return sum(part_bytes(part, dtype, tp) for part in parts)


def part_bytes(part: StatePart, dtype: str, tp: int = 1, whole_kernel: bool = False, auto: str | None = None) -> int:
    """Bytes of one part of a state; ``whole_kernel``: with as many columns as the kernel, as transformers keeps it.

    ``auto``: the dtype where config and architecture leave it to the engine (32 bits where nothing is said).
    """
    columns = part.columns - (0 if whole_kernel else 1) if part.columns else 1
    heads = share(part.heads, tp, f"heads of the {part.name} state")
    fixed = (auto or "fp32") if part.dtype == AUTO else part.dtype
    return heads * get(fixed or dtype, part.name)[0].bytes_of(part.numbers * columns)


def _flops(layer: Layer, context: int) -> int:
    read = kinds.rows(layer, context).read
    if layer.latent:
        return 2 * layer.query_heads * (2 * layer.latent + layer.rope) * read
    if layer.kind in ("latent_window", "csa", "hca"):
        return 2 * layer.query_heads * 2 * layer.key_dim * read
    return 2 * layer.query_heads * (layer.key_dim + layer.value_dim) * read
