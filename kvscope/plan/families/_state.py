"""What recurrent layers keep, by kind of recurrence: the parts of their state, by heads."""

from __future__ import annotations

from kvscope.plan.layer import StatePart


def delta_rule(
    key_heads: int, key_dim: int, value_heads: int, value_dim: int, columns: int, dtype: str | None
) -> tuple[StatePart, ...]:
    """Gated delta rule: a matrix a value head, and the past of the convolution over queries, keys and values."""
    return (
        StatePart("recurrent", value_heads, key_dim * value_dim, dtype=dtype),
        StatePart("conv", key_heads, 2 * key_dim, columns),
        StatePart("conv", value_heads, value_dim, columns),
    )


def mamba2(
    heads: int, head_dim: int, state: int, groups: int, columns: int, dtype: str | None
) -> tuple[StatePart, ...]:
    """Mamba 2: a matrix a head, and the past of the convolution over inputs and the two projections a group."""
    return (
        StatePart("recurrent", heads, head_dim * state, dtype=dtype),
        StatePart("conv", heads, head_dim, columns),
        StatePart("conv", groups, 2 * state, columns),
    )


def mamba1(inner: int, state: int, columns: int, dtype: str | None) -> tuple[StatePart, ...]:
    """Mamba 1: ``state`` numbers a channel, and the past of the convolution over the channels."""
    return (StatePart("recurrent", inner, state, dtype=dtype), StatePart("conv", inner, 1, columns))
