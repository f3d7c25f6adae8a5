"""Latent rows of one layer on a CUDA device, by shape: rows of `kernels_cuda`, in the columns of its table.

``read`` is attention over the rows that the shape reads, all of them or those chosen; ``select`` what choosing adds
before, ``select+read`` both. ``generic`` is the same by plain torch. A share is of the bytes that must be read: rows,
and index keys where there are any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from engine.kernels._cuda.tuning import processors
from engine.lab.tables.timing import replayed, sets_for
from engine.latent.pool import LatentBatch, LatentPool, eight_bit
from engine.latent.readers import PlainLatentReader, TritonLatentReader
from engine.latent.shape import LatentShape, named

NAMES = ("mla", "mla-64", "dsa", "csa", "hca")
FEW = 64 << 20
"""Bytes of rows up to which the plain operators' copies are timed on every set."""
MOST_BYTES = 24 << 30
Row = dict[str, object]
Asked = tuple[LatentPool, LatentBatch, Tensor, Tensor, Tensor]


def asked(shape: LatentShape, batch: int, context: int, count: int) -> list[Asked]:
    """Disjoint requests over one pool of random rows in random pages, each with queries of its own."""
    tokens, device = shape.page_tokens, "cuda"
    pages, own = -(-shape.rows(context) // tokens), -(-shape.window // tokens)
    pool = LatentPool.empty(shape, count * batch * (pages + own), device=device)
    for part in pool.rows.split(1 << 20):  # type: ignore[no-untyped-call]
        part.normal_()
    if shape.top_k:
        some = torch.randn(min(len(pool.rows), 1 << 20), shape.index_dim, device=device)
        values, scales = eight_bit(some)
        both = torch.cat(
            (
                values.view(torch.uint8).view(-1, tokens * shape.index_dim),
                scales.view(torch.uint8).view(-1, tokens * 4),
            ),
            1,
        )
        for part in pool.keys.split(len(both)):  # type: ignore[no-untyped-call]
            part.copy_(both[: len(part)])
    order = torch.randperm(count * batch * (pages + own), device=device).int().view(count, batch, pages + own)
    made = []
    for one in order:
        requests = LatentBatch(shape, batch, pages, device)
        requests.table.copy_(one[:, :pages])
        requests.counts.fill_(shape.rows(context))
        slots = torch.arange(tokens, device=device).int()
        requests.own.copy_((one[:, pages:, None] * tokens + slots).flatten(1)[:, : shape.window])
        requests.own_counts.fill_(shape.own_rows(context))
        q = torch.randn(batch, shape.heads, shape.width, device=device).bfloat16()
        queries, scale = eight_bit(
            torch.randn(batch, max(1, shape.index_heads), max(16, shape.index_dim), device=device)
        )
        weights = torch.randn(batch, max(1, shape.index_heads), device=device) * scale
        made.append((pool, requests, q, queries, weights))
    return made


def rows_of(name: str, batch: int, context: int, copy: float) -> Iterator[Row]:
    """One shape's rows, in the order of measuring."""
    shape = named(name)
    size, read = batch * shape.bytes_read(context), batch * shape.rows_read(context) * shape.row_bytes
    whole = batch * shape.rows(context) * (shape.row_bytes + shape.index_bytes)
    count = max(1, min(sets_for(read), MOST_BYTES // max(whole, 1)))
    sets = asked(shape, batch, context, count)
    readers = [TritonLatentReader(one[0], one[1], processors()) for one in sets]
    scale = (shape.width) ** -0.5
    kept = shape.rows_read(context) / context

    def row(path: str, us: float, moved: int) -> Row:
        rate = moved / us * 1e6
        return {
            "path": path, "batch": batch, "context": context, "kept": kept, "form": name, "ms": us / 1e3,
            "gb_per_s": rate / 1e9, "share": rate / copy,
        }  # fmt: skip

    for reader, one in zip(readers, sets, strict=True):
        reader.plan()
        reader.select(one[3], one[4])
    us = timed([partial(reader.attend, one[2], scale) for reader, one in zip(readers, sets, strict=True)])
    yield row("read", us, read)
    if shape.top_k:
        both = timed([partial(chosen_and_read, reader, one, scale) for reader, one in zip(readers, sets, strict=True)])
        yield row("select", both - us, size - read)
        yield row("select+read", both, size)
    plain = [PlainLatentReader(one[0], one[1]) for one in sets[: 4 if read > FEW else count]]
    us = timed(
        [partial(chosen_and_read, reader, one, scale) for reader, one in zip(plain, sets, strict=False)], least=2
    )
    yield row("generic", us, size)


def chosen_and_read(reader: TritonLatentReader | PlainLatentReader, one: Asked, scale: float) -> None:
    if one[0].shape.top_k:
        reader.select(one[3], one[4])
    reader.attend(one[2], scale)


def timed(calls: Sequence[Callable[[], object]], least: int = 12) -> float:
    return replayed(calls, least=least, replays=7)
