"""What the kernels are measured beside: torch's attention over packed rows, FlexAttention, and a gather by token."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn.functional import scaled_dot_product_attention

from engine.kernels._cuda.pool import PagedPool


def sdpa_grouped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """q [B, q_heads, d], k and v [B, kv_heads, T, d]: torch's own grouping of heads."""
    return scaled_dot_product_attention(q[:, :, None], k, v, enable_gqa=True)


def sdpa_folded(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The same with the group's queries as rows, which reads K and V once."""
    return scaled_dot_product_attention(q.view(*k.shape[:2], -1, q.shape[-1]), k, v)


def choose_blocks(q: torch.Tensor, pool: PagedPool, table: torch.Tensor, keep: int) -> torch.Tensor:
    """Selection by plain operators: gather mean keys, multiply, top-k. Pages int64 [B, kv_heads, keep], ascending."""
    shape = pool.geometry
    means = pool.reps[table.long(), :, 0, 0].transpose(1, 2)
    score = (q.view(len(q), shape.kv_heads, -1, shape.head_dim) @ means.transpose(-1, -2)).amax(2)
    spot = score.topk(keep, -1).indices.sort(-1).values
    return pool.place[table.long()].transpose(1, 2).long().gather(2, spot)


def gathered(q: torch.Tensor, pool: PagedPool, pages: torch.Tensor) -> torch.Tensor:
    """The generic operator: an index per token, rows copied together, attention over the copies."""
    tokens, dim = pool.geometry.block_tokens, pool.geometry.head_dim
    rows = (pages[..., None] * (2 * tokens) + torch.arange(tokens, device=q.device)).flatten(2)
    flat = pool.hot.view(-1, dim)
    return sdpa_folded(q, flat[rows], flat[rows + tokens])


def flex_call(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, spots: torch.Tensor | None, tokens: int
) -> Callable[[], torch.Tensor]:
    """A compiled FlexAttention call over packed rows; `spots` int32 [B, kv_heads, n] are the blocks to read, or all."""
    from torch.nn.attention.flex_attention import BlockMask, flex_attention

    mask = None
    if spots is not None:
        group = q.shape[1] // k.shape[1]
        index = spots.repeat_interleave(group, 1)[:, :, None].contiguous()
        count = torch.full(index.shape[:3], index.shape[3], dtype=torch.int32, device=q.device)
        empty = torch.zeros_like(count)
        wide = torch.zeros(*index.shape[:3], k.shape[2] // tokens, dtype=torch.int32, device=q.device)
        wide[..., : index.shape[3]] = index
        mask = BlockMask.from_kv_blocks(
            empty, wide, count, wide, BLOCK_SIZE=(128, tokens), seq_lengths=(1, k.shape[2]), compute_q_blocks=False
        )
    compiled = torch.compile(flex_attention, dynamic=False)
    return lambda: compiled(q[:, :, None], k, v, block_mask=mask, enable_gqa=True)
