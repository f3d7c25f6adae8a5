"""Between host and device: small tables without waiting, pages through pinned memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from engine.forms import HOST

if TYPE_CHECKING:
    from engine.arena import Arena
    from engine.cache import KVCache, Transfer

STAGED = 512
"""Pages on their way at a time."""


def send(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A copy on the device; from pinned memory to a CUDA one, so that nobody waits for what is queued there."""
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


class Link:
    """Pages between the pool and the host's arena, through a staging buffer: pinned where the device is CUDA.

    Copies run on a stream of their own, after what was queued before them, so that a step goes on beside a prefetch.
    """

    def __init__(self, cache: KVCache, host: Arena) -> None:
        self._cache, self._host = cache, host
        cuda = cache.device.type == "cuda"
        size = STAGED * max(cache.arena.page_bytes.values())
        self._staging = torch.empty(size, dtype=torch.uint8, pin_memory=cuda)
        self._stream = torch.cuda.Stream(cache.device) if cuda else None  # type: ignore[no-untyped-call]

    def carry(self, transfer: Transfer) -> int:
        """Copy the bytes as they are, from any thread; how many. They are there when this returns."""
        if self._stream is None:
            return self._parts(transfer)
        with torch.cuda.device(self._cache.device):
            self._stream.wait_stream(torch.cuda.default_stream(self._cache.device))
            with torch.cuda.stream(self._stream):
                return self._parts(transfer)

    def _parts(self, transfer: Transfer) -> int:
        pool, form = self._cache.arena, transfer.code % HOST
        size = pool.page_bytes[form]
        for i in range(0, len(transfer.old), STAGED):
            old, new = transfer.old[i : i + STAGED], transfer.new[i : i + STAGED]
            staged = self._staging[: len(old) * size].view(len(old), size)
            if transfer.code < HOST:
                staged.copy_(pool.read(form, old), non_blocking=True)
                self._wait()
                self._host.write(form, new, staged)
            else:
                staged.copy_(self._host.read(form, old))
                pool.write(form, new, staged.to(self._cache.device, non_blocking=True))
                self._wait()
        return len(transfer.old) * size

    def _wait(self) -> None:
        if self._stream is not None:
            self._stream.synchronize()

    def read(self, codes: torch.Tensor, offsets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """k, v [n, tokens, d] on the device of pages that lie in host memory, in passing."""
        cache = self._cache
        shape = (len(codes), cache.geometry.block_tokens, cache.geometry.head_dim)
        dtype = getattr(torch, cache.geometry.dtype)
        k, v = torch.zeros(2, *shape, dtype=dtype, device=cache.device)
        for code in torch.unique(codes).tolist():
            mask = codes == code
            at = mask.to(cache.device)
            pages = self._host.read(code % HOST, offsets[mask]).to(cache.device)
            decoded = cache.forms[code % HOST].decode(cache.geometry, pages)
            k[at], v[at] = (part.to(dtype) for part in decoded)
        return k, v
