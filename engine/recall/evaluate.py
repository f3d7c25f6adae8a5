"""Measure recall while the KV cache is compressed as the engine would compress it.

An independent, plain-torch statement of int8 rows and block selection: slow, batched, one path for every row of
the table, so that the full cache is its own control. `python -m engine.recall.evaluate` prints the model card's table.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.model import Decoder
from engine.recall.task import ASK, DENSITY, expected, make_document, starts
from engine.weights.shipped import load_shipped

BLOCK, SUB_BLOCK, SINK, RECENT = 32, 16, 32, 128


@dataclass(frozen=True)
class Compression:
    """What is done to the cache: symmetric integers of `bits` per row, and the share of blocks a decode step reads."""

    name: str = "full"
    bits: int | None = None
    kept_share: float | None = None


@dataclass(frozen=True)
class Work:
    """`walks` walks of `steps` generated tokens over each of `documents` documents."""

    length: int
    documents: int
    walks: int
    steps: int = 96
    density: float = DENSITY
    seed: int = 1


@dataclass(frozen=True)
class Score:
    """Tokens right of tokens checked; nats and logit margin of the right token, over checked tokens."""

    right: int
    checked: int
    nll: float
    margin_p5: float

    @property
    def accuracy(self) -> float:
        return self.right / self.checked


class CompressedCache:
    """Keys and values of equally long sequences; every row is compressed when written, also while prefilling."""

    def __init__(self, model: Decoder, rows: int, capacity: int, compression: Compression) -> None:
        config, weight = model.config, model.embed.weight
        self.last_layer = config.layers - 1
        self.compression = compression
        shape = (config.layers, rows, capacity, config.kv_heads, config.head_dim)
        self.keys = torch.zeros(shape, device=weight.device)
        self.values = torch.zeros(shape, device=weight.device)
        self.filled = 0

    def fork(self, copies: int) -> None:
        """Continue every sequence `copies` times."""
        self.keys = self.keys.repeat_interleave(copies, dim=1)
        self.values = self.values.repeat_interleave(copies, dim=1)

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        rows = self.keys.shape[1]
        queries, k, v = (x.reshape(rows, -1, *x.shape[1:]) for x in (q, k, v))
        new = k.shape[1]
        end = self.filled + new
        self.keys[layer, :, self.filled : end] = quantised(k, self.compression.bits)
        self.values[layer, :, self.filled : end] = quantised(v, self.compression.bits)
        mixed = self._attend(queries, self.keys[layer, :, :end], self.values[layer, :, :end])
        if layer == self.last_layer:
            self.filled = end
        return mixed.flatten(0, 1)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q [rows, new, q_heads, d], k and v [rows, end, kv_heads, d] -> [rows, new, q_heads, d]."""
        new, end = q.shape[1], k.shape[1]
        q = q.reshape(*q.shape[:2], k.shape[2], -1, q.shape[-1]) * q.shape[-1] ** -0.5
        scores = torch.einsum("rnhgd,rthd->rhgnt", q, k)
        if new > 1:
            future = torch.ones(new, end, dtype=torch.bool, device=q.device).triu(1 + end - new)
            scores.masked_fill_(future, float("-inf"))
        elif self.compression.kept_share is not None:
            skipped = ~selected(q[:, 0], k, self.compression.kept_share)
            scores.masked_fill_(skipped[:, :, None, None], float("-inf"))
        mixed: Tensor = torch.einsum("rhgnt,rthd->rnhgd", scores.softmax(-1), v).flatten(2, 3)
        return mixed


def quantised(rows: Tensor, bits: int | None) -> Tensor:
    """Round the last dimension to symmetric integers of `bits`, one scale per row, and back to float."""
    if bits is None:
        return rows
    most = (1 << (bits - 1)) - 1
    scale = rows.abs().amax(-1, keepdim=True).clamp_min(1e-12) / most
    return (rows / scale).round() * scale


def selected(q: Tensor, k: Tensor, kept_share: float) -> Tensor:
    """Which of T tokens one decode step reads: the sink, the recent window and the best blocks, kept_share in all.

    q [rows, kv_heads, group, d], k [rows, T, kv_heads, d] -> bool [rows, kv_heads, T]. A block scores the upper
    bound of q . k over its sub-blocks' per-channel ranges (Quest), the highest of its sub-blocks and of the group.
    """
    tokens = k.shape[1]
    blocks = -(-tokens // BLOCK)
    padding = k[:, -1:].expand(-1, blocks * BLOCK - tokens, -1, -1)
    parts = torch.cat((k, padding), 1).reshape(len(k), -1, SUB_BLOCK, *k.shape[2:])
    low, high = parts.amin(2), parts.amax(2)
    bound = torch.einsum("rhgd,rshd->rhgs", q.clamp_min(0), high) + torch.einsum("rhgd,rshd->rhgs", q.clamp_max(0), low)
    score = bound.reshape(*bound.shape[:3], blocks, BLOCK // SUB_BLOCK).amax((-1, 2))
    score[..., : SINK // BLOCK] = float("inf")
    score[..., (tokens - RECENT) // BLOCK :] = float("inf")
    best = score.topk(int(kept_share * blocks), -1).indices
    kept = torch.zeros_like(score, dtype=torch.bool).scatter_(-1, best, True)
    return kept.repeat_interleave(BLOCK, -1)[..., :tokens]


@torch.inference_mode()
def measure(model: Decoder, work: Work, compression: Compression, chunk: int = 512) -> Score:
    """Generate greedily and check every token against the token emitted before it."""
    device, rng = model.embed.weight.device, random.Random(work.seed)
    documents = [make_document(rng, work.length, work.density) for _ in range(work.documents)]
    cache = CompressedCache(model, work.documents, work.length + 2 + work.steps, compression)
    tokens = torch.tensor([document.tokens for document in documents], device=device)
    for first in range(0, work.length, chunk):
        _forward(model, cache, tokens[:, first : first + chunk])
    cache.fork(work.walks)
    asked = [(document, key) for document in documents for key in rng.sample(starts(document, 1), work.walks)]
    current = [key for _, key in asked]
    logits = _forward(model, cache, torch.tensor([[ASK, key] for key in current], device=device))
    right, nll, margins = 0, 0.0, []
    for step in range(work.steps):
        emitted = logits.argmax(-1).tolist()
        known = [row for row, (document, _) in enumerate(asked) if current[row] in document.successor]
        answers = [expected(asked[row][0], current[row]) for row in known]
        right += sum(emitted[row] == answer for row, answer in zip(known, answers, strict=True))
        answer_ids, rows = torch.tensor(answers, device=device), logits[known]
        nll += float(F.cross_entropy(rows, answer_ids, reduction="sum"))
        margins.append(_margin(rows, answer_ids))
        current = emitted
        if step + 1 < work.steps:
            logits = _forward(model, cache, torch.tensor(current, device=device)[:, None])
    margin = torch.cat(margins)
    checked = len(asked) * work.steps
    return Score(right, checked, nll / max(1, len(margin)), float(margin.quantile(0.05)))


def _forward(model: Decoder, cache: CompressedCache, tokens: Tensor) -> Tensor:
    """Run [rows, new] tokens behind what the cache holds -> logits [rows, vocab] of the last of them."""
    rows, new = tokens.shape
    positions = torch.arange(cache.filled, cache.filled + new, device=tokens.device).repeat(rows)
    hidden = model(tokens.flatten(), positions, cache)
    return model.logits(hidden.reshape(rows, new, -1)[:, -1])


def _margin(logits: Tensor, answers: Tensor) -> Tensor:
    """The right token's logit less the best other one's, per row."""
    right = logits.gather(1, answers[:, None])
    return (right - logits.scatter(1, answers[:, None], float("-inf")).amax(1, keepdim=True))[:, 0]


FULL, INT8 = Compression(), Compression("int8", 8)
SPARSE, BOTH = Compression("25 % read", None, 0.25), Compression("int8, 25 % read", 8, 0.25)
HARSH = (Compression("int4", 4), Compression("int2", 2), Compression("int8, 12.5 % read", 8, 0.125),
         Compression("int8, 6.25 % read", 8, 0.0625))  # fmt: skip
TABLE = (
    (Work(2048, 16, 2), (FULL, INT8, SPARSE, BOTH)),
    (Work(8192, 16, 2), (FULL, INT8, SPARSE, BOTH, *HARSH)),
    (Work(8192, 16, 2, density=1 / 12), (FULL, BOTH, *HARSH)),
    (Work(16384, 16, 2), (FULL, INT8, SPARSE, BOTH)),
    (Work(32000, 8, 4), (FULL, BOTH)),
)


def table(model: Decoder) -> list[dict[str, object]]:
    """Measure and print every cell of the model card's table."""
    rows: list[dict[str, object]] = []
    for work, compressions in TABLE:
        for compression in compressions:
            score = measure(model, work, compression)
            rows.append({"length": work.length, "density": work.density, "cache": compression.name, **asdict(score)})
            print(
                f"{work.length:6d}  1/{1 / work.density:.0f}  {compression.name:18s} {score.accuracy:8.3%} of "
                f"{score.checked}  nll {score.nll:.4f}  margin p5 {score.margin_p5:.2f}",
                flush=True,
            )
    return rows


if __name__ == "__main__":
    table(load_shipped()[1].to("cuda" if torch.cuda.is_available() else "cpu"))
