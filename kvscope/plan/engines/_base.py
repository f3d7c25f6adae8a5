"""What is asked of an engine, and what it answers: the layout of its pool on one GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from kvscope.errors import UsageError
from kvscope.plan import kinds
from kvscope.plan.forms import KvForms
from kvscope.plan.layer import Layer
from kvscope.plan.model import Geometry, part_bytes


@dataclass(frozen=True, slots=True)
class Split:
    """How a model is spread: tensor and pipeline ranks, data-parallel attention groups inside ``tp``, expert ranks."""

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1

    def __post_init__(self) -> None:
        for option, value in (("--tp", self.tp), ("--pp", self.pp), ("--dp-attention", self.dp), ("--ep", self.ep)):
            if not 1 <= value <= 1024:
                raise UsageError(f"{option} {value}: expected 1 to 1024")
        if self.tp % self.dp:
            raise UsageError(f"--dp-attention {self.dp}: expected a divisor of --tp {self.tp}")

    @property
    def attention(self) -> int:
        """Ranks that share the heads of one request."""
        return self.tp // self.dp

    @property
    def gpus(self) -> int:
        return self.tp * self.pp


@dataclass(frozen=True, slots=True)
class Options:
    """What an engine's command line can change about its pool; None: its own default."""

    release: tuple[int, ...] = ()
    block_size: int | None = None
    batched_tokens: int | None = None
    swa_ratio: float | None = None
    slots: int = 1
    micro_batch: int | None = None
    swa_full: bool = False
    unified: bool = False
    draft_tokens: int = 0
    prefix_caching: bool | None = None
    state_ratio: float | None = None
    state_dtype: str | None = None
    memory_bytes: int | None = None
    """Of the GPU, where it is known: defaults depend on it."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request of ``context`` tokens of a model in these forms, spread so."""

    model: Geometry
    forms: KvForms
    context: int
    split: Split = field(default_factory=Split)
    options: Options = field(default_factory=Options)

    @property
    def drafts(self) -> bool:
        return self.options.draft_tokens > 0

    def stage(self, rank: int) -> tuple[Layer, ...]:
        """The layers of one pipeline stage; draft layers stand on the last."""
        counted = self.model.counted(self.drafts)
        if self.split.pp == 1:
            return counted
        places = max(layer.stage for layer in counted) + 1
        if self.split.pp > places:
            raise UsageError(f"--pp {self.split.pp}: expected at most the {places} layers of the model")
        ends, at = [], 0
        for size in _stages(places, self.split.pp):
            at += size
            ends.append(at)
        start = ends[rank - 1] if rank else 0
        last = rank == self.split.pp - 1
        return tuple(one for one in counted if (last if one.draft else start <= one.stage < ends[rank]))

    def row(self, layer: Layer, forms: KvForms | None = None) -> int:
        """Bytes of one row of a layer on one rank, index key left out."""
        return kinds.row_bytes(layer, forms or self.forms, self.split.attention)

    def index(self, layer: Layer) -> int:
        """Bytes of one index key."""
        return kinds.index_bytes(layer, self.forms)

    def state(self, layer: Layer, whole_kernel: bool = False, more_columns: int = 0) -> int:
        """Bytes of a layer's recurrent state on one rank; ``more_columns``: what speculation adds to a convolution."""
        return sum(
            part_bytes(
                replace(part, columns=part.columns + more_columns) if part.columns else part,
                self.model.dtype,
                self.split.attention,
                whole_kernel,
                self.options.state_dtype,
            )
            for part in layer.state
        )


@dataclass(frozen=True, slots=True)
class Pool:
    """What a pool of some bytes holds: tokens, and requests of the context that was asked, at once."""

    tokens: int
    concurrency: float


@dataclass(frozen=True, slots=True)
class Layout:
    """An engine's answer for one GPU. ``growing``: what one more token adds; ``fill``: what a pool of bytes holds.

    ``allocated``: what an engine takes at once for its settings (llama.cpp's slots), None where it fills what is free.
    ``rules`` say how each figure came about, for ``--explain``; ``notes`` what is assumed or deviates.
    """

    growing: float
    state_bytes: int
    request_bytes: int
    fill: Callable[[int], Pool]
    rules: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    allocated: int | None = None


def up(value: int, step: int) -> int:
    """Round up to a multiple."""
    return -(-value // step) * step


def _stages(layers: int, pp: int) -> list[int]:
    """Layers a stage: even, what is left over goes to the last stages but one (vLLM ``get_pp_indices``)."""
    sizes = [layers // pp] * pp
    for back in range(2, layers % pp + 2):
        sizes[-back] += 1
    return sizes
