"""The same on a CUDA device, in the pool's type: the paged kernels of `engine.kernels._cuda`, and four of our own.

Where a rank has all blocks of its heads, choosing and attending are exactly one GPU's two launches.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton

from engine.geometry import KVGeometry
from engine.kernels._base import Keep
from engine.kernels._cuda.attend import Launch, attend
from engine.kernels._cuda.page import INTERPRETED
from engine.kernels._cuda.pool import ABSENT, PagedPool
from engine.kernels._cuda.select import Chooser
from engine.kernels._cuda.tuning import choice_for, launch_for, processors
from engine.kernels._cuda.worklist import WorkList
from engine.lab.shards._device_kernels import list_above, log_sums, merge_ranks, score_keys
from engine.lab.shards.held import Held
from engine.lab.shards.shape import Shape

UNITS = 64
NO_DEVICE_PROCESSORS = 8


@dataclass
class DeviceHeld(Held):
    """Blocks of all requests in one pool: request b's j-th is block b * n + j. `k`, `v` moved into its pages."""

    pool: PagedPool
    work: WorkList
    chooser: Chooser
    table: torch.Tensor
    lens: torch.Tensor
    buffer: torch.Tensor
    launch: Launch
    own_bytes: int

    @property
    def kv_bytes(self) -> int:
        return self.own_bytes


def on_device(held: Held, shape: Shape, layer: int, ranks: int) -> DeviceHeld:
    """Put a part into a pool; all its blocks are full. `ranks` share each head's blocks. ValueError for `pins`."""
    assert held.k is not None
    assert held.v is not None
    if shape.pins:
        raise ValueError(f"pins {shape.pins}: the device's selection knows sinks and window only")
    requests, heads, n = held.places.shape
    device, tokens, dim = held.k.device, shape.block_tokens, shape.head_dim
    geometry = KVGeometry(1, heads, heads * shape.group, dim, block_tokens=tokens, rep_tokens=tokens, rep_rows=1)
    own_bytes = held.kv_bytes
    pool = PagedPool.empty(geometry, requests * n, 0, dtype=held.k.dtype, device=device)
    pool.hot = torch.stack((held.k.flatten(0, 2), held.v.flatten(0, 2)), 1)
    held.k = held.v = None
    pages = torch.arange(requests * heads * n, dtype=torch.int32, device=device).view(requests, heads, n)
    placed = pages.masked_fill(held.places < 0, ABSENT)
    pool.place.copy_(placed.transpose(1, 2).reshape(requests * n, heads))
    pool.reps.copy_(held.means.transpose(1, 2).reshape(requests * n, heads, 1, 1, dim))
    work = WorkList(geometry, requests, max(16, triton.next_power_of_2(n)), device)
    table = torch.arange(requests * n, dtype=torch.int32, device=device).view(requests, n)
    lens = torch.full((requests,), n * tokens, dtype=torch.int32, device=device)
    work.everything(pool, table, lens)
    keep = Keep(
        shape.share, shape.sink_blocks * tokens, shape.window_blocks * tokens, 1, tokens,
        shape.wanted_in(layer) if shape.chosen else 0,
    )  # fmt: skip
    chooser = Chooser(pool, requests, n, keep)
    chooser.plan([n * tokens] * requests)
    rows = requests * heads * shape.group
    buffer = torch.empty(rows * dim + rows, device=device)
    launch = _launch(requests * heads, max(1, shape.wanted_in(layer) // ranks), merges=ranks > 1)
    return DeviceHeld(
        held.places, held.pinned, held.means, None, None, held.first_head, work.counts[0].view(requests, heads),
        pool, work, chooser, table, lens, buffer, launch, own_bytes,
    )  # fmt: skip


def _launch(pairs: int, pages: int, *, merges: bool) -> Launch:
    """At least two parts where sums are wanted: one part alone leaves none behind."""
    count = NO_DEVICE_PROCESSORS if INTERPRETED else processors()
    found = launch_for(pairs, pages, count)
    return Launch(2, found.warps, found.stages) if merges and found.parts < 2 else found


class Device:
    def __init__(self) -> None:
        self._keys = torch.zeros(0)

    def keys(self, q: torch.Tensor, held: Held) -> torch.Tensor:
        assert isinstance(held, DeviceHeld)
        requests, heads, n = held.places.shape
        group, dim = q.shape[2:]
        self._keys = torch.empty(held.places.shape, dtype=torch.int64, device=q.device)
        score_keys[(requests * heads, triton.cdiv(n, UNITS))](
            q, held.pool.reps, held.places, held.pinned.view(torch.int8), self._keys, n, heads, requests * n,
            GROUP=group, ROWS=max(16, triton.next_power_of_2(group)), DIM=dim, UNITS=UNITS, UPCAST=INTERPRETED,
            PRECISION="ieee" if q.dtype == torch.float32 else "tf32",
        )  # fmt: skip
        return self._keys

    def choose_alone(self, q: torch.Tensor, held: Held, wanted: int) -> torch.Tensor | None:
        assert isinstance(held, DeviceHeld)
        pairs, n = len(held.places) * held.heads, held.places.shape[2]
        own = q.view(len(q), -1, q.shape[-1])
        held.chooser.choose(own, held.pool, held.table, held.lens, held.work, choice_for(pairs, n))
        return None

    def part(self, q: torch.Tensor, held: Held, edge: torch.Tensor | None) -> torch.Tensor:
        assert isinstance(held, DeviceHeld)
        requests, heads, n = held.places.shape
        work, group, dim = held.work, q.shape[2], q.shape[3]
        if edge is not None:
            list_above[(requests * heads,)](
                self._keys, edge, held.pool.place, work.pages, work.counts, n, heads, requests * n, work.capacity,
                CAP=max(16, triton.next_power_of_2(n)), num_warps=8 if n > 1024 else 4,
            )  # fmt: skip
        out = held.buffer[: q.numel()].view(requests, heads * group, dim)
        attend(q.view(out.shape), out, held.pool, work, dim**-0.5, held.launch)
        log_sums[(requests * heads,)](
            work.space.weight, held.buffer[q.numel() :], held.launch.parts,
            GROUP=group, LANES=triton.next_power_of_2(group), DIM=dim,
        )  # fmt: skip
        return held.buffer

    def whole(self, q: torch.Tensor, held: Held, edge: torch.Tensor | None) -> torch.Tensor:
        assert isinstance(held, DeviceHeld)
        own = q.view(len(q), -1, q.shape[-1])
        return attend(own, torch.empty_like(own), held.pool, held.work, q.shape[-1] ** -0.5, held.launch).view(q.shape)

    def merge(self, parts: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(q)
        rows, dim = q.numel() // q.shape[-1], q.shape[-1]
        merge_ranks[(rows,)](parts, out, rows, parts.shape[1], RANKS=len(parts), DIM=dim)
        return out
