"""The ranks' way to talk: torch.distributed (NCCL between GPUs, gloo between CPUs), with what it costs counted."""

from __future__ import annotations

from datetime import timedelta

import torch
import torch.distributed as dist

from engine.lab.shards.clock import Clock

TIMEOUT_S = 30.0
"""A rank that lives and does not answer for so long is as good as gone. One that died is told of by the launcher."""
# Torch 2.13 calls it by another name, and warns of the old one.
_all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
EXCHANGE, RECEIVE = "exchange", "receive"


class Group:
    """`sent_bytes` counts what this rank's own data weighs times the ranks it goes to, whatever route it takes.

    While `muted` nothing is exchanged, every rank answering itself: which tells what the exchanges cost.
    """

    def __init__(self, rank: int, size: int, device: str = "cpu") -> None:
        self.rank, self.size, self.device = rank, size, device
        self.clock = Clock(device)
        self.sent_bytes = 0
        self.muted = False

    @classmethod
    def join(cls, rank: int, size: int, meeting: str, device: str, timeout_s: float = TIMEOUT_S) -> Group:
        """Meet the other ranks at `meeting` (a file:// address that all of them see). Every rank has its own GPU."""
        cuda = device.startswith("cuda")
        if cuda:
            torch.cuda.set_device(torch.device(device))
        dist.init_process_group(
            "nccl" if cuda else "gloo",
            init_method=meeting,
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=timeout_s),
            device_id=torch.device(device) if cuda else None,
        )
        return cls(rank, size, device)

    def gather(self, mine: torch.Tensor) -> torch.Tensor:
        """[ranks, ...] of equal tensors, in the order of ranks."""
        if self.size == 1:
            return mine[None]
        whole = torch.empty((self.size, *mine.shape), dtype=mine.dtype, device=mine.device)
        if self.muted:
            return whole.copy_(mine.expand_as(whole))
        self.sent_bytes += (self.size - 1) * mine.numel() * mine.element_size()
        started = self.clock.start()
        _all_gather(whole.view(-1), mine.contiguous().view(-1))
        self.clock.stop(started, EXCHANGE)
        return whole

    def send(self, mine: torch.Tensor, to: int) -> None:
        if self.muted:
            return
        self.sent_bytes += mine.numel() * mine.element_size()
        dist.send(mine.contiguous(), to)

    def receive(self, into: torch.Tensor, source: int) -> None:
        if self.muted:
            return
        started = self.clock.start()
        dist.recv(into, source)
        self.clock.stop(started, RECEIVE)

    def told(self, mine: list[float]) -> torch.Tensor:
        """[ranks, n] of every rank's numbers, float64, beside the step: counted nowhere. All have met afterwards."""
        own = torch.tensor(mine, dtype=torch.float64, device=self.device)
        if self.size == 1:
            return own[None].cpu()
        whole = torch.empty((self.size, len(mine)), dtype=torch.float64, device=self.device)
        _all_gather(whole.view(-1), own)
        return whole.cpu()

    def leave(self) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()
