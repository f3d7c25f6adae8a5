"""What one layer of a model keeps of a request, as data: kind, heads, head sizes of K and V apart, window, state."""

from __future__ import annotations

from dataclasses import dataclass

from kvscope.errors import UsageError

AUTO = "auto"


@dataclass(frozen=True, slots=True)
class StatePart:
    """One piece of a recurrent state: ``heads`` units of ``numbers`` each, split over ranks by unit.

    ``columns``: the width of a short convolution's kernel, whose past is this part; then ``numbers`` are those of one
    column, and engines keep one column less than the kernel is wide. ``dtype`` is None where a part is kept as the
    model computes, AUTO where config and architecture leave it to the engine, else what they fix.
    """

    name: str
    heads: int
    numbers: int
    columns: int = 0
    dtype: str | None = None


@dataclass(frozen=True, slots=True)
class Layer:
    """One attention or state layer. Sizes in numbers, not bytes; ``kv_heads`` are those of the whole model.

    ``window``: newest tokens kept (or the chunk); ``latent`` and ``rope``: the row that MLA shares between heads;
    ``index``: numbers of a sparse index's key, ``top_k``: tokens that are read; ``ratio``: tokens a stored row stands
    for; ``stage``: its place among the model's layers, which pipeline stages split; ``draft``: of an MTP module.
    """

    kind: str
    kv_heads: int = 0
    key_dim: int = 0
    value_dim: int = 0
    window: int | None = None
    query_heads: int = 0
    latent: int = 0
    rope: int = 0
    index: int = 0
    top_k: int = 0
    ratio: int = 1
    state: tuple[StatePart, ...] = ()
    stage: int = 0
    draft: bool = False

    def heads_on_rank(self, tp: int) -> int:
        """KV heads one of ``tp`` ranks holds: its share, or a copy of one where there are fewer heads than ranks."""
        return share(self.kv_heads, tp, "KV heads")


def share(heads: int, tp: int, what: str) -> int:
    """``max(1, heads / tp)``; UsageError where neither divides the other, as engines refuse it too."""
    if heads == 0:
        return 0
    if heads % tp and tp % heads:
        raise UsageError(f"--tp {tp}: {heads} {what} cannot be split over {tp} ranks; expected a divisor or multiple")
    return max(1, heads // tp)
