"""One decode step of an 8B Llama shape with random weights over paged pools, in bfloat16, by three ways to attend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn.functional import linear, rms_norm, silu

from engine.geometry import KVGeometry
from engine.kernels._base import Keep
from engine.kernels._cuda.attend import Launch, attend
from engine.kernels._cuda.pool import PagedPool
from engine.kernels._cuda.select import Choice, Chooser
from engine.kernels._cuda.store import append
from engine.kernels._cuda.worklist import WorkList
from tests.bench.gpu_rivals import choose_blocks, gathered

TOKENS, KEPT = 64, 0.25
LAYERS, HIDDEN, FFN, VOCAB = 32, 4096, 14336, 128256
Q_HEADS, KV_HEADS, DIM = 32, 8, 128


@dataclass
class Layer:
    qkv: torch.Tensor
    out: torch.Tensor
    up: torch.Tensor
    down: torch.Tensor
    norms: torch.Tensor


def random(*shape: int) -> torch.Tensor:
    return torch.empty(*shape, dtype=torch.bfloat16, device="cuda").normal_(std=shape[-1] ** -0.5)


class Weights:
    def __init__(self, layers: int = LAYERS, hidden: int = HIDDEN, ffn: int = FFN, vocab: int = VOCAB) -> None:
        rows = (Q_HEADS + 2 * KV_HEADS) * DIM
        self.layers = [
            Layer(
                random(rows, hidden), random(hidden, Q_HEADS * DIM), random(2 * ffn, hidden), random(hidden, ffn),
                torch.ones(2, hidden, dtype=torch.bfloat16, device="cuda"),
            )
            for _ in range(layers)
        ]  # fmt: skip
        self.embedding, self.head = random(vocab, hidden), random(vocab, hidden)
        self.norm = torch.ones(hidden, dtype=torch.bfloat16, device="cuda")


class Store:
    """The KV of all layers: `cold_share` of the full blocks' pages int8, the rest bfloat16, in random order."""

    def __init__(self, layers: int, batch: int, context: int, cold_share: float) -> None:
        self.geometry = KVGeometry(1, KV_HEADS, Q_HEADS, DIM, block_tokens=TOKENS, rep_tokens=TOKENS)
        per = context // TOKENS
        blocks = batch * per
        order = torch.randperm(blocks, device="cuda").int()
        self.table = order.view(batch, per).contiguous()
        frozen = torch.rand(blocks, KV_HEADS, device="cuda") < cold_share
        frozen[self.table[:, -1].long()] = False
        place = torch.where(
            frozen, -1 - frozen.flatten().cumsum(0).view_as(frozen), (~frozen).flatten().cumsum(0).view_as(frozen) - 1
        ).int()
        cold = int(frozen.sum())
        self.pools = [PagedPool.empty(self.geometry, blocks, blocks * KV_HEADS - cold, cold) for _ in range(layers)]
        for pool in self.pools:
            for part in pool.hot.split(1 << 14):
                part.normal_()
            pool.cold.view(torch.int32).random_()
            pool.scales.uniform_(0, 0.02)
            pool.reps.normal_(std=TOKENS**-0.5)
            pool.place.copy_(place)

    @property
    def resident_bytes(self) -> int:
        return sum(pool.resident_bytes for pool in self.pools)


class Step:
    """`lens` grows by one at the start of each `run`; everything it touches stays where it is."""

    def __init__(self, weights: Weights, store: Store, lens: list[int], launch: Launch, how: Choice) -> None:
        self.weights, self.store, self.launch, self.how = weights, store, launch, how
        batch, per = store.table.shape
        self.lens = torch.tensor(lens, dtype=torch.int32, device="cuda")
        self.tokens = torch.zeros(batch, dtype=torch.int64, device="cuda")
        self.work = WorkList(store.geometry, batch, per, "cuda")
        self.work.everything(store.pools[0], store.table, self.lens)
        keep = Keep(KEPT, sink_tokens=TOKENS, window_tokens=TOKENS, block_tokens=TOKENS)
        self.chooser = Chooser(store.pools[0], batch, per, keep)
        self.chooser.plan(lens)
        self.kept = keep.blocks_for(lens[0])
        angle = torch.arange(per * TOKENS + 1, device="cuda")[:, None] / 5e5 ** (
            torch.arange(0, DIM, 2, device="cuda") / DIM
        )
        self.cos, self.sin = (f(angle).bfloat16().repeat(1, 2)[:, None] for f in (torch.cos, torch.sin))

    def rotate(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        half = torch.cat((-x[..., DIM // 2 :], x[..., : DIM // 2]), -1)
        return torch.addcmul(x * cos, half, sin)

    def dense(self, q: torch.Tensor, pool: PagedPool) -> torch.Tensor:
        return attend(q, torch.empty_like(q), pool, self.work, DIM**-0.5, self.launch)

    def block(self, q: torch.Tensor, pool: PagedPool) -> torch.Tensor:
        self.chooser.choose(q, pool, self.store.table, self.lens, self.work, self.how)
        return attend(q, torch.empty_like(q), pool, self.work, DIM**-0.5, self.launch)

    def generic(self, q: torch.Tensor, pool: PagedPool) -> torch.Tensor:
        pages = choose_blocks(q, pool, self.store.table, self.kept)
        return gathered(q, pool, pages).view(q.shape)

    def run(self, way: Callable[[torch.Tensor, PagedPool], torch.Tensor]) -> torch.Tensor:
        batch = len(self.tokens)
        self.lens.add_(1)
        self.work.set_tail(self.lens)
        cos, sin = self.cos[self.lens - 1], self.sin[self.lens - 1]
        x = self.weights.embedding[self.tokens]
        for layer, pool in zip(self.weights.layers, self.store.pools, strict=True):
            rows = linear(rms_norm(x, x.shape[-1:], layer.norms[0]), layer.qkv).view(batch, -1, DIM)
            turned = self.rotate(rows[:, : Q_HEADS + KV_HEADS], cos, sin)
            q, k = turned[:, :Q_HEADS].contiguous(), turned[:, Q_HEADS:].contiguous()
            append(k, rows[:, Q_HEADS + KV_HEADS :].contiguous(), pool, self.store.table, self.lens)
            x = x + linear(way(q, pool).view(batch, -1), layer.out)
            gate, up = linear(rms_norm(x, x.shape[-1:], layer.norms[1]), layer.up).chunk(2, -1)
            x = x + linear(silu(gate) * up, layer.down)
        logits = linear(rms_norm(x, x.shape[-1:], self.weights.norm), self.weights.head)
        self.tokens.copy_(logits.argmax(-1))
        return logits
